// Parts of a page that are fetched only once they are needed: a hub that restarts at that moment must not leave a hole.
import { pause } from "./pause";

const WAITS_MS = [500, 1000, 2000, 4000, 8000, 15_000, 15_000, 15_000]; // a minute in all

/** What `load` gives, tried again for as long as a hub takes to restart. React remembers for good that a part failed. */
export async function retryImport<T>(load: () => Promise<T>): Promise<T> {
  for (const wait of WAITS_MS) {
    try {
      return await load();
    } catch {
      await pause(wait);
    }
  }
  return load();
}
