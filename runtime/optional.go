package runtime

// Optional finds the optional interface T of a part of an agent: the part's own,
// or that of the part which it wraps. A wrapper that embeds an interface hides all
// other methods of the value in it, so it says what it wraps in one method:
//
//	type counting struct{ pleg.Generator }
//
//	func (c counting) Unwrap() any { return c.Generator }
//
// The outermost part that has T wins, so that a wrapper can wrap an optional
// method too.
func Optional[T any](part any) (found T, ok bool) {
	for part != nil {
		if found, ok = part.(T); ok {
			return found, true
		}
		wrapper, wraps := part.(interface{ Unwrap() any })
		if !wraps {
			break
		}
		part = wrapper.Unwrap()
	}
	return found, false
}
