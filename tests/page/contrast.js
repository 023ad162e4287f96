// Drawings are turned round in the dark by a filter, which leaves their contrast as it is.
// Texts whose contrast with the ground behind them is below AA: 4.5, or 3 where they are large.
() => {
  const parse = (text) => (text.match(/[\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((part) => part / 255).map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = (node) => { for (let at = node; at; at = at.parentElement) { const c = parse(getComputedStyle(at).backgroundColor); if (c.length === 3 || c[3] === 1) return c; } return [255, 255, 255]; };
  const bad = new Set();
  for (const node of document.querySelectorAll("body *")) {
    if (![...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim())) continue;
    if (["SCRIPT", "STYLE"].includes(node.tagName) || node.closest(".sr, title, noscript, .skip, [data-theme=dark] .drawn") || !node.getClientRects().length) continue;
    const style = getComputedStyle(node), one = light(parse(node instanceof SVGElement ? style.fill : style.color)), two = light(ground(node));
    const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && +style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) bad.add(`${(node.className.baseVal ?? node.className) || node.tagName}: ${ratio.toFixed(2)}`);
  }
  return [...bad];
}
