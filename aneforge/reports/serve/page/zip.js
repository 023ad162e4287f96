"use strict";
// A folder as one .zip file, stored and not packed: nothing is gained on the way to one's own machine.
const CRC = new Uint32Array(256).map((_, at) => { for (let bit = 0; bit < 8; bit++) at = at & 1 ? (at >>> 1) ^ 0xedb88320 : at >>> 1; return at; });
function crcOf(bytes) {
  let crc = 0xffffffff;
  for (let at = 0; at < bytes.length; at++) crc = CRC[(crc ^ bytes[at]) & 0xff] ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}
// A record of 2-byte and 4-byte numbers, as [bytes, value], and what follows it.
function record(fields, ...rest) {
  const view = new DataView(new ArrayBuffer(fields.reduce((sum, [size]) => sum + size, 0)));
  let at = 0;
  for (const [size, value] of fields) { size === 2 ? view.setUint16(at, value, true) : view.setUint32(at, value, true); at += size; }
  return [new Uint8Array(view.buffer), ...rest];
}
// entries: [{ path, file }]
async function zipped(entries, name) {
  const parts = [], directory = [];
  let start = 0, directorySize = 0;
  for (const { path, file } of entries) {
    const bytes = new Uint8Array(await file.arrayBuffer()), label = new TextEncoder().encode(path), crc = crcOf(bytes);
    const about = [[2, 20], [2, 0x800], [2, 0], [2, 0], [2, 33], [4, crc], [4, bytes.length], [4, bytes.length], [2, label.length], [2, 0]];
    parts.push(...record([[4, 0x04034b50], ...about], label, bytes));
    directory.push(...record([[4, 0x02014b50], [2, 20], ...about, [2, 0], [2, 0], [2, 0], [4, 0], [4, start]], label));
    start += 30 + label.length + bytes.length;
    directorySize += 46 + label.length;
  }
  const end = record([[4, 0x06054b50], [2, 0], [2, 0], [2, entries.length], [2, entries.length], [4, directorySize], [4, start], [2, 0]]);
  return new File([...parts, ...directory, ...end], `${name}.zip`);
}
// The files of a dropped folder.
async function filesOf(entry, path = entry.name) {
  if (entry.isFile) return [{ path, file: await new Promise((done, fail) => entry.file(done, fail)) }];
  const reader = entry.createReader(), found = [];
  for (;;) {
    const some = await new Promise((done, fail) => reader.readEntries(done, fail));
    if (!some.length) return found;
    for (const one of some) found.push(...await filesOf(one, `${path}/${one.name}`));
  }
}
