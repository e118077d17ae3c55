// The contrast of each text that is seen with what lies below it, and the beginning of the text.
() => {
  const read = (text) => { const [r, g, b, a = 1] = text.match(/[0-9.]+/g).map(Number); return {r, g, b, a}; };
  const mixed = (top, low) => (it) => [it, top[it] * top.a + low[it] * (1 - top.a)];
  const over = (top, low) => Object.fromEntries(["r", "g", "b"].map(mixed(top, low)));
  const light = ({r, g, b}) => [r, g, b].map((it) => it / 255).map((it) => it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4)
    .reduce((sum, it, at) => sum + it * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = (element) => {
    const own = element ? read(getComputedStyle(element).backgroundColor) : {r: 255, g: 255, b: 255, a: 1};
    return own.a >= 1 ? own : over(own, ground(element.parentElement));
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    const box = element.getBoundingClientRect();
    if (!node.data.trim() || !box.width || element.closest("noscript, script, :disabled, label.off")) continue;
    const isDrawn = element instanceof SVGElement;
    const style = getComputedStyle(element);
    const ink = read(isDrawn ? style.fill : style.color);
    let paper = ground(isDrawn ? element.closest("svg").parentElement : element);
    const heat = element.closest("g.node")?.querySelector("rect.heat");
    if (heat) {
      const own = read(getComputedStyle(heat).fill);
      paper = over({...own, a: 0.47}, read(getComputedStyle(element.closest("g.node").querySelector("rect.paper")).fill));
    }
    if (element.closest("g.flag")) paper = read(getComputedStyle(element.closest("g.flag").querySelector("rect")).fill);
    const [one, other] = [light(ink), light(paper)].sort((a, b) => b - a);
    found.push([(one + 0.05) / (other + 0.05), node.data.trim().slice(0, 40)]);
  }
  return found;
}
