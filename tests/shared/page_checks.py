"""What holds for every page: texts stand out, and what is used has a name."""

CONTRAST = """
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const rgba = text => {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = text;
  canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
};
const line = v => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
const light = ([r, g, b]) => 0.2126 * line(r) + 0.7152 * line(g) + 0.0722 * line(b);
const ground = e => {
  for (; e; e = e.parentElement) {
    const c = rgba(getComputedStyle(e).backgroundColor);
    if (c[3] === 255) return c;
  }
  return [255, 255, 255, 255];
};
const found = [];
for (const e of document.querySelectorAll("body *")) {
  const own = e.matches("input, select, textarea") || [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
  const seen = e.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  if (!own || !seen || e.matches("script, noscript, option, :disabled")) continue;
  const [a, b] = [light(rgba(getComputedStyle(e).color)), light(ground(e))];
  const name = `${e.tagName}.${e.className}#${e.id} ${e.textContent.slice(0, 20)}`;
  found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), name]);
}
return found.sort((a, b) => a[0] - b[0]);
"""

NAMED = {
    "button",
    "slider",
    "spinbutton",
    "searchbox",
    "textbox",
    "combobox",
    "checkbox",
    "img",
    "image",
    "progressbar",
    "article",
    "feed",
    "canvas",
}


def contrasts(page):
    """The contrast of every text in view to its ground, with its element, the lowest first."""
    return page.run(CONTRAST)


def named_roles(page):
    """The roles of what is used in the page; each of them has a name."""
    seen = set()
    for node in page.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]:
        role = node.get("role", {}).get("value")
        if not node["ignored"] and role in NAMED:
            seen.add(role)
            assert node.get("name", {}).get("value", "").strip(), node
    return seen


def overflow(page):
    """By how many pixels the page is wider than the window."""
    return page.run("const e = document.documentElement; return e.scrollWidth - e.clientWidth")
