// The labels to choose from: buttons with keys where there are few, a box to search in for all of them.

const CHOICE_KEYS = [..."1234567890abcdefghijklmnopqrstuvwxyz"];

// keys are places, but where every label is a key itself, as 0 to 9 are, it has that one: 1 must never mean 0
function areKeys(labels) {
  const keys = new Set(labels.map(name => name.toLowerCase()));
  return keys.size === labels.length && [...keys].every(key => CHOICE_KEYS.includes(key));
}

class Choices {
  constructor(root, { answers, choose }) {
    this.root = root;
    this.answers = answers;
    this.choose = choose;
    this.buttons = [];
    this.keys = []; // of the buttons
    this.keyed = answers.data.classes.length <= CHOICE_KEYS.length;
    this.named = areKeys(answers.data.classes);
    root.hidden = !this.keyed;
    this.grow();
  }

  // labels that somebody added get buttons behind the others, as long as there are keys
  grow() {
    if (!this.keyed) return;
    for (const name of this.answers.labels.slice(this.buttons.length, CHOICE_KEYS.length)) {
      const label = this.buttons.length;
      const key = this.freeKey(name);
      this.keys.push(key);
      const button = make("button", "choice", "", { type: "button", "aria-keyshortcuts": key });
      button.append(make("kbd", "", key, { "aria-hidden": "true" }), makeText("span", "name", name));
      button.addEventListener("click", () => this.choose(label));
      this.buttons.push(button);
      this.root.append(button);
    }
  }

  // behind labels that are keys, a new one that is none has a letter, which is not taken for a number
  freeKey(name) {
    if (!this.named) return CHOICE_KEYS[this.keys.length];
    const own = name.toLowerCase();
    const free = CHOICE_KEYS.filter(key => !this.keys.includes(key));
    return free.includes(own) ? own : (free.find(key => key >= "a") ?? free[0]);
  }

  show(slot) {
    this.grow();
    const chosen = this.answers.label(slot);
    this.buttons.forEach((button, label) => button.setAttribute("aria-pressed", String(label === chosen)));
  }

  // the label of a key, -1 where it has none
  ofKey(key) {
    return this.keyed ? this.keys.indexOf(key.toLowerCase()) : -1;
  }
}
