package pleg

// What tests outside of the package need to see of the inside.

var (
	ErrNotRunning    = errNotRunning
	ErrMissedChanges = errMissedChanges
	ErrStreamEnded   = errStreamEnded
)

// Remembered returns the number of pods that the generator has a state of. The
// generator must be waiting; see [synctest.Wait].
func Remembered(g Generator) int {
	switch g := g.(type) {
	case *Generic:
		return len(g.podStates.pods)
	case *Evented:
		return len(g.podStates.pods)
	default:
		panic("not a generator of this package")
	}
}

// Held returns the number of pods that are held or have deferred hints.
func Held(g *Evented) int { return len(g.stream.holds) + len(g.stream.deferred) }
