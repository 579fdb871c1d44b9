// What the browser keeps of this page. Where a page comes from a file, it may have no storage or refuse it.

class Kept {
  constructor(key) {
    this.key = key;
    this.works = true;
    this.refused = () => {}; // what to do when the browser stops keeping
  }

  read() {
    try {
      return JSON.parse(localStorage.getItem(this.key));
    } catch {
      this.works = false;
      return null;
    }
  }

  // null: there is nothing to keep
  write(value) {
    try {
      if (value === null) localStorage.removeItem(this.key);
      else localStorage.setItem(this.key, JSON.stringify(value));
      this.works = true;
    } catch {
      const worked = this.works;
      this.works = false;
      if (worked) this.refused();
    }
  }
}
