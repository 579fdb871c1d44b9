// Keep, fix, skip, ambiguous, and the label that a fix gives.

const OTHER = -2; // in place of a label: the box in which one is searched for or made

class Actions {
  constructor({ data, decisions }) {
    this.data = data;
    this.decisions = decisions;
    this.buttons = {};
    this.root = make("div", "actions", "", { role: "group", "aria-label": "Decision" });
    for (const [word, text, mark] of [
      ["keep", "Keep", "✓"],
      ["fix", "Fix", "→"],
      ["ambiguous", "Ambiguous", "?"],
      ["skip", "Skip", "–"],
    ]) {
      const button = make("button", `decide ${word}`, "", {
        type: "button",
        "data-decide": word,
        "aria-keyshortcuts": word[0],
      });
      button.append(make("span", "mark", mark, { "aria-hidden": "true" }), text);
      this.buttons[word] = button;
      this.root.append(button);
    }
    this.select = make("select", "label-choice", "", { "aria-keyshortcuts": "l" });
    this.select.addEventListener("pointerdown", () => this.fill());
    this.select.addEventListener("focus", () => this.fill());
    const box = make("label", "label-box");
    box.append(make("span", "", "fix to"), this.select);
    this.root.append(box);
  }

  show(slot) {
    const { data, decisions } = this;
    this.slot = slot;
    const id = data.ids[slot];
    const given = data.classes[data.given[slot]];
    const word = decisions.word(slot);
    for (const [name, button] of Object.entries(this.buttons))
      button.setAttribute("aria-pressed", String(name === word));
    const chosen = word === "fix" ? decisions.label(slot) : this.suggestion(slot);
    const to = chosen < 0 ? "another label" : decisions.labels[chosen];
    this.buttons.keep.setAttribute("aria-label", `Keep ${given}, row ${id}`);
    this.buttons.fix.setAttribute("aria-label", `Fix to ${to}, row ${id}`);
    this.buttons.ambiguous.setAttribute("aria-label", `Ambiguous, row ${id}`);
    this.buttons.skip.setAttribute("aria-label", `Skip row ${id}`);
    this.select.setAttribute("aria-label", `fix to: label for row ${id}`);
    this.filled = -1;
    this.select.replaceChildren(this.option(chosen));
    if (document.activeElement === this.select) this.fill();
  }

  // -1 where the model suggests the label that the row has
  suggestion(slot) {
    return this.data.suggested[slot] === this.data.given[slot] ? -1 : this.data.suggested[slot];
  }

  option(label) {
    return new Option(label < 0 ? "choose a label" : this.decisions.labels[label], label);
  }

  // all labels become options when somebody is about to choose: a thousand of them in every card would be slow
  fill() {
    if (this.filled === this.slot) return;
    this.filled = this.slot;
    const value = Number(this.select.value);
    const given = this.data.given[this.slot];
    this.select.replaceChildren();
    if (value < 0) this.select.append(this.option(-1));
    this.decisions.labels.forEach((_, label) => label !== given && this.select.append(this.option(label)));
    this.select.append(new Option("Search, or a new label…", OTHER));
    this.select.value = String(value);
  }
}
