// The labels to choose from: buttons with keys where there are few, a box to search in for all of them.

const CHOICE_KEYS = [..."1234567890abcdefghijklmnopqrstuvwxyz"];

class Choices {
  constructor(root, { answers, choose }) {
    this.root = root;
    this.answers = answers;
    this.choose = choose;
    this.buttons = [];
    this.keyed = answers.data.classes.length <= CHOICE_KEYS.length;
    root.hidden = !this.keyed;
    this.grow();
  }

  // labels that somebody added get buttons behind the others, as long as there are keys
  grow() {
    if (!this.keyed) return;
    for (const name of this.answers.labels.slice(this.buttons.length, CHOICE_KEYS.length)) {
      const label = this.buttons.length;
      const key = CHOICE_KEYS[label];
      const button = make("button", "choice", "", { type: "button", "aria-keyshortcuts": key });
      button.append(make("kbd", "", key, { "aria-hidden": "true" }), makeText("span", "name", name));
      button.addEventListener("click", () => this.choose(label));
      this.buttons.push(button);
      this.root.append(button);
    }
  }

  show(slot) {
    this.grow();
    const chosen = this.answers.label(slot);
    this.buttons.forEach((button, label) => button.setAttribute("aria-pressed", String(label === chosen)));
  }

  // the label of a key, -1 where it has none
  ofKey(key) {
    const label = this.keyed ? CHOICE_KEYS.indexOf(key.toLowerCase()) : -1;
    return label < this.buttons.length ? label : -1;
  }
}
