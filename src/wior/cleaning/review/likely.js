// The next likely labels of a row as buttons, each with its probability.

class Likely {
  constructor({ data, decisions }, most = Infinity) {
    this.data = data;
    this.decisions = decisions;
    this.root = make("div", "likely", "", { role: "group", "aria-label": "Likely labels" });
    this.buttons = Array.from({ length: Math.min(most, data.likelyEach) }, (_, i) => {
      const parts = {
        root: make("button", "likely-label", "", { type: "button" }),
        name: makeText("span", "name", ""),
        number: make("span", "number"),
      };
      if (i < 9) {
        parts.root.append(make("kbd", "", String(i + 1), { "aria-hidden": "true" }));
        parts.root.setAttribute("aria-keyshortcuts", String(i + 1));
      }
      parts.root.append(parts.name, parts.number);
      this.root.append(parts.root);
      return parts;
    });
  }

  show(slot) {
    const { data, decisions, buttons } = this;
    if (!buttons.length) return;
    const code = decisions.codes[slot];
    data.likely(slot).forEach(({ value, number }, i) => {
      if (!buttons[i]) return;
      const { root, name, number: share } = buttons[i];
      const given = value === data.given[slot];
      root.dataset.likely = value;
      name.textContent = data.classes[value];
      share.textContent = percent(number);
      root.classList.toggle("is-given", given);
      root.title = `${data.classes[value]}${given ? ", the given label" : ""}: ${percent(number)}`;
      root.setAttribute("aria-pressed", String(given ? code === KEEP : code === FIX + value));
      root.setAttribute("aria-label", `${given ? "Keep" : "Fix to"} ${root.title}, row ${data.ids[slot]}`);
    });
  }
}
