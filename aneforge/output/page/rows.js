// The page is one file: these scripts read the rows inside it and ask nothing of the network.
async function readRows() {
  const place = document.getElementById("data");
  if (place.type === "application/json") return JSON.parse(place.textContent);
  const packed = Uint8Array.from(atob(place.textContent), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}
