package flow

// Signal wakes one goroutine. It holds one token at most, which stands for all that has changed since the token was
// taken: the goroutine receives it, and then reads the state.
type Signal chan struct{}

// NewSignal returns a signal without a token.
func NewSignal() Signal { return make(Signal, 1) }

// Notify adds a token, unless there is one. It does not block.
func (s Signal) Notify() {
	select {
	case s <- struct{}{}:
	default:
	}
}
