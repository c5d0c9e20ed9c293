// What is fetched only once it is needed: a hub that restarts at that moment must not leave a hole in the page.

const WAITS_MS = [500, 1000, 2000, 4000, 8000, 15_000, 15_000, 15_000]; // a minute in all

/** What `load` gives, tried again for as long as a hub takes to restart. React remembers for good that a part failed. */
export async function patiently<T>(load: () => Promise<T>): Promise<T> {
  for (const wait of WAITS_MS) {
    try {
      return await load();
    } catch {
      await new Promise((passed) => setTimeout(passed, wait));
    }
  }
  return load();
}
