// Run the experiments of this folder on a Mac, and write results.json: the same file as run.py writes, with nothing but
// the system's Swift (macOS 14.4 or newer, for the compute plan). Nothing is sent anywhere.
//
//     swift run.swift                  all experiments
//     swift run.swift X01 X51          these only
//     swift run.swift --out mine.json  another name for the results
//
// Programs of the vendor's compiler (programs/) are run.py's work: it calls a tool of yours for them.

import CoreML
import CryptoKit
import Foundation

let here = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
let warmUp = 2, short = 3, long = 30, mostWords = 4096

func asked(_ tool: String, _ arguments: [String]) -> String {
    let process = Process(), pipe = Pipe()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
    process.arguments = [tool] + arguments
    process.standardOutput = pipe
    process.standardError = FileHandle.nullDevice
    guard (try? process.run()) != nil else { return "" }
    let data = pipe.fileHandleForReading.readDataToEndOfFile()
    process.waitUntilExit()
    return (String(data: data, encoding: .utf8) ?? "").trimmingCharacters(in: .whitespacesAndNewlines)
}

func sha256(_ data: Data) -> String {
    SHA256.hash(data: data).map { String(format: "%02x", $0) }.joined()
}

func thermalState() -> String {
    switch ProcessInfo.processInfo.thermalState {
    case .nominal: return "nominal"
    case .fair: return "fair"
    case .serious: return "serious"
    default: return "critical"
    }
}

func matches(_ pattern: String, in text: String) -> [String] {
    guard let expression = try? NSRegularExpression(pattern: pattern) else { return [] }
    let range = NSRange(text.startIndex..., in: text)
    return expression.matches(in: text, range: range).compactMap {
        Range($0.range(at: 1), in: text).map { String(text[$0]) }
    }
}

/// The machine without anything that names its owner.
func machine() -> [String: Any] {
    let registry = asked("ioreg", ["-l", "-w0", "-r", "-c", "H11ANEIn"])
    let names = matches("ArchitectureTypeStr\"?\\s*=\\s*\"?(h\\d+[a-z]?)", in: registry)
    return [
        "chip": asked("sysctl", ["-n", "machdep.cpu.brand_string"]).replacingOccurrences(of: "Apple ", with: ""),
        "model": asked("sysctl", ["-n", "hw.model"]),
        "os": "macOS " + asked("sw_vers", ["-productVersion"]),
        "build": asked("sw_vers", ["-buildVersion"]),
        "memory_gb": Int(ProcessInfo.processInfo.physicalMemory >> 30),
        "engine_names": Array(Set(names)).sorted(),
        "power": asked("pmset", ["-g", "batt"]).contains("Battery Power") ? "battery" : "mains",
        "low_power": ProcessInfo.processInfo.isLowPowerModeEnabled,
        "thermal": thermalState(),
    ]
}

/// A package that can be read: packed ones go into a temporary folder.
func unpacked(_ name: String, _ folder: URL) -> URL {
    guard name.hasSuffix(".zip") else { return here.appendingPathComponent(name) }
    _ = asked("ditto", ["-x", "-k", here.appendingPathComponent(name).path, folder.path])
    return folder.appendingPathComponent(String(name.split(separator: "/").last!.dropLast(4)))
}

func features(_ ports: [String: [String: Any]]) throws -> MLFeatureProvider {
    var values: [String: MLFeatureValue] = [:]
    for (name, port) in ports {
        let shape = (port["shape"] as! [Int])
        let wide = (port["type"] as? String) == "<f4"
        let extents = shape.map { NSNumber(value: $0) }
        let array = try MLMultiArray(shape: extents, dataType: wide ? .float32 : .float16)
        let count = shape.reduce(1, *)
        if wide {
            let numbers = array.dataPointer.bindMemory(to: Float.self, capacity: count)
            numbers.update(repeating: (port["fill"] as! NSNumber).floatValue, count: count)
            values[name] = MLFeatureValue(multiArray: array)
            continue
        }
        let words = array.dataPointer.bindMemory(to: UInt16.self, capacity: count)
        if let file = port["file"] as? String {
            let data = try Data(contentsOf: here.appendingPathComponent(file))
            data.withUnsafeBytes { words.update(from: $0.bindMemory(to: UInt16.self).baseAddress!, count: count) }
        } else {
            words.update(repeating: Float16((port["fill"] as! NSNumber).doubleValue).bitPattern, count: count)
        }
        values[name] = MLFeatureValue(multiArray: array)
    }
    return try MLDictionaryFeatureProvider(dictionary: values)
}

/// A result as fp16 words in the order of its axes: shape, hash, and all words where they are few.
func wordsOf(_ array: MLMultiArray) -> [String: Any] {
    var data = Data(), head = ""
    for place in 0..<array.count {
        let number = Float16(array[place].doubleValue)
        let word = number.isNaN ? 0x7E00 : number.bitPattern
        withUnsafeBytes(of: word.littleEndian) { data.append(contentsOf: $0) }
        if place < mostWords { head += String(format: "%04x", word) }
    }
    return ["shape": array.shape.map { $0.intValue }, "sha256": sha256(data), "words": head]
}

func device(_ device: MLComputeDevice) -> String {
    switch device {
    case .neuralEngine: return "MLNeuralEngineComputeDevice"
    case .gpu: return "MLGPUComputeDevice"
    default: return "MLCPUComputeDevice"
    }
}

func planRows(_ compiled: URL, _ configuration: MLModelConfiguration) async throws -> [[String: Any]] {
    let plan = try await MLComputePlan.load(contentsOf: compiled, configuration: configuration)
    guard case .program(let program) = plan.modelStructure, let main = program.functions["main"] else { return [] }
    return main.block.operations.map { operation in
        let usage = plan.deviceUsage(for: operation)
        return [
            "operatorName": operation.operatorName,
            "outputs": operation.outputs.map { ["name": $0.name] },
            "preferredComputeDevice": usage.map { device($0.preferred) } as Any? ?? NSNull(),
            "supportedComputeDevices": usage.map { $0.supported.map(device) } ?? [],
        ]
    }
}

func runCase(_ given: [String: Any], _ folder: URL) async throws -> [String: Any] {
    let configuration = MLModelConfiguration()
    configuration.computeUnits = (given["units"] as! String) == "cpuOnly" ? .cpuOnly : .cpuAndNeuralEngine
    let compiled = try await MLModel.compileModel(at: unpacked(given["package"] as! String, folder))
    defer { try? FileManager.default.removeItem(at: compiled) }
    let rows = try await planRows(compiled, configuration)
    let model = try MLModel(contentsOf: compiled, configuration: configuration)
    let inputs = try features(given["inputs"] as! [String: [String: Any]])
    let timed = given["timed"] as! Bool, names = given["outputs"] as! [String]
    var times: [Int] = [], first: [String: Any] = [:], stable = true
    for call in 0..<(warmUp + (timed ? long : short)) {
        let begin = DispatchTime.now().uptimeNanoseconds
        let outputs = try await model.prediction(from: inputs)
        let taken = Int(DispatchTime.now().uptimeNanoseconds - begin)
        guard call >= warmUp else { continue }
        times.append(taken)
        if timed && call > warmUp { continue }
        var results: [String: Any] = [:]
        for name in names { results[name] = wordsOf(outputs.featureValue(for: name)!.multiArrayValue!) }
        if first.isEmpty { first = results } else { stable = stable && NSDictionary(dictionary: first).isEqual(to: results) }
    }
    return ["plan": rows, "times_ns": times, "outputs": first, "stable": stable]
}

/// The digest of what was measured, as run.py makes it.
func seal(_ document: [String: Any]) -> String {
    let machine = document["machine"] as! [String: Any], kit = document["kit"] as! [String: Any]
    var lines = [kit["digest"] as! String] + ["chip", "model", "os", "build"].map { machine[$0] as! String }
    lines += machine["engine_names"] as! [String]
    for row in document["results"] as! [[String: Any]] {
        lines.append("\(row["id"]!) \(row["case"]!) \(row["asked"]!) \(row["status"]!)")
        for (name, result) in (row["outputs"] as? [String: [String: Any]] ?? [:]).sorted(by: { $0.key < $1.key }) {
            lines.append("\(name) \(result["sha256"]!)")
        }
        for step in row["plan"] as? [[String: Any]] ?? [] {
            let name = (step["outputs"] as! [[String: String]]).first?["name"] ?? ""
            lines.append("\(name) \(step["preferredComputeDevice"] as? String ?? "None")")
        }
        lines.append((row["times_ns"] as? [Int] ?? []).map(String.init).joined(separator: " "))
        lines.append(sha256(Data()))
    }
    return sha256(lines.joined(separator: "\n").data(using: .utf8)!)
}

var wanted: [String] = [], out = "results.json", arguments = Array(CommandLine.arguments.dropFirst())
while let word = arguments.first {
    arguments.removeFirst()
    if word == "--out", let name = arguments.first { out = name; arguments.removeFirst() } else { wanted.append(word) }
}
let manifest = try JSONSerialization.jsonObject(with: Data(contentsOf: here.appendingPathComponent("manifest.json"))) as! [String: Any]
for (name, digest) in manifest["files"] as! [String: String] {
    let data = try? Data(contentsOf: here.appendingPathComponent(name))
    guard let data, sha256(data) == digest else {
        print("\(name): not as the kit was written; get the folder again")
        exit(1)
    }
}
let cases = (manifest["cases"] as! [[String: Any]]).filter { wanted.isEmpty || wanted.contains($0["id"] as! String) }
var results: [[String: Any]] = []
let begin = Date()
for (number, given) in cases.enumerated() {
    FileHandle.standardError.write("\(number + 1) of \(cases.count): \(given["part"]!)\n".data(using: .utf8)!)
    var row: [String: Any] = ["status": "ran", "message": "", "thermal": thermalState()]
    for key in ["id", "case", "asked"] { row[key] = given[key] }
    let folder = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: folder) }
    do {
        if given["package"] != nil {
            row.merge(try await runCase(given, folder)) { $1 }
        } else if given["netplist"] != nil {
            row["status"] = "skipped"
        }
    } catch {
        row["status"] = "failed"
        row["message"] = String("\(error)".prefix(300))
    }
    results.append(row)
}
var document: [String: Any] = ["schema": 1, "kind": "aneforge kit results", "kit": manifest["kit"]!, "machine": machine()]
document["results"] = results
document["runner"] = ["name": "run.swift", "scope": "coreml_call", "library": "Core ML"]
document["took_s"] = (Date().timeIntervalSince(begin) * 10).rounded() / 10
document["digest"] = seal(document)
let options: JSONSerialization.WritingOptions = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
try JSONSerialization.data(withJSONObject: document, options: options).write(to: URL(fileURLWithPath: out))
let ran = results.filter { $0["status"] as! String == "ran" }.count
print("\(out): \(ran) of \(cases.count) ran. Read it, then send it to whom you like.")
