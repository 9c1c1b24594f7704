// Checks of accessibility that run in the page.
({
  // The contrast of every text with what is behind it, as WCAG computes it.
  contrast() {
    const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
    const parsed = (colour) => {  // any colour of CSS, over white, as red, green, blue and alpha
      canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
      return [r, g, b, a / 255];
    };
    const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3]));
    const behind = (node) => {
      const layers = [];
      for (let each = node; each; each = each.parentElement) {
        const colour = parsed(getComputedStyle(each).backgroundColor);
        if (colour[3]) layers.push(colour);
        if (colour[3] === 1) break;
      }
      return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255]);
    };
    const light = (rgb) => {
      const [r, g, b] = rgb.map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const found = [];
    for (const node of document.querySelectorAll("body *")) {
      const own = [...node.childNodes].some((each) => each.nodeType === 3 && each.data.trim());
      if (!own || !node.checkVisibility({visibilityProperty: true, opacityProperty: true}) || node.closest(".visually-hidden, .skip, :disabled, option")) continue;
      const style = getComputedStyle(node), under = behind(node);
      const colour = over(parsed(node.namespaceURI.endsWith("svg") ? style.fill : style.color), under);
      const [a, b] = [light(colour), light(under)].sort((x, y) => y - x);
      const size = Number.parseFloat(style.fontSize);
      const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
      found.push({what: `${node.tagName}.${node.getAttribute("class")}: ${node.textContent.slice(0, 30)}`, ratio: (a + 0.05) / (b + 0.05), least: isLarge ? 3 : 4.5});
    }
    return found;
  },
  // Every control and region without a name.
  unnamed() {
    const controls = "button, a, input, select, textarea, [tabindex], summary, section, dialog";
    const said = (node) => node?.textContent.trim();
    const named = (node) =>
      node.getAttribute("aria-label") || said(node.labels?.[0])
      || (node.getAttribute("aria-labelledby") ?? "").split(" ").some((id) => said(document.getElementById(id)))
      || (!["SECTION", "SELECT", "TEXTAREA"].includes(node.tagName) && said(node));
    return [...document.querySelectorAll(controls)]
      .filter((node) => node.checkVisibility() && node.id !== "context" && !named(node))
      .map((node) => node.outerHTML.slice(0, 120));
  },
})
