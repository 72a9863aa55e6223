// Tells elements whether they are on the screen, so that only those ask the server.
import { useEffect, useRef, useState } from "preact/hooks";
import type { RefObject } from "preact";

const kMargin = "200px";

const listeners = new WeakMap<Element, (isVisible: boolean) => void>();

// One observer for the whole page: a thousand rows cost one.
const observer = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) listeners.get(target)?.(isIntersecting);
}, { rootMargin: kMargin });

// Returns a reference for an element, and true while that element is on the screen or near it.
export function useVisible<T extends Element>(): [RefObject<T | null>, boolean] {
  const element = useRef<T>(null);
  const [isVisible, setVisible] = useState(false);
  useEffect(() => {
    const watched = element.current;
    if (watched === null) return undefined;
    listeners.set(watched, setVisible);
    observer.observe(watched);
    return () => {
      observer.unobserve(watched);
      listeners.delete(watched);
    };
  }, []);
  return [element, isVisible];
}
