package runtime

// Optional returns the optional interface T of a component, from the component
// itself or, if it does not have T, from the one that it wraps.
//
// A wrapper that embeds an interface hides all other methods of the value in it. The
// method Unwrap makes them visible to Optional again:
//
//	type counting struct{ pleg.Generator }
//
//	func (c counting) Unwrap() any { return c.Generator }
//
// The outermost component that has T wins, so a wrapper can wrap an optional method
// too.
//
// A wrapper that embeds a type, such as a pointer to the default implementation, has all methods
// of the type, also those of T. A method of T then calls the methods of the embedded value, and not
// those that the wrapper overrides. Such a wrapper overrides the methods of T too, or embeds the
// interface of the component instead.
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
