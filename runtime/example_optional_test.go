package runtime_test

import (
	"context"
	"fmt"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// quiet is a runtime with an event stream. Its other methods are those of the
// interface in it, which is nil here.
type quiet struct{ runtime.Runtime }

func (quiet) WatchEvents(ctx context.Context, established func(), _ func(runtime.Hint)) error {
	established()
	<-ctx.Done()
	return ctx.Err()
}

// timed wraps a runtime to measure its syncs. A runtime.Runtime has no WatchEvents,
// so a timed has none either.
type timed struct{ runtime.Runtime }

func (t timed) SyncPod(ctx context.Context, req runtime.PodSync) (runtime.SyncResult, error) {
	// Start a clock here.
	return t.Runtime.SyncPod(ctx, req)
}

// unwrapping is a timed that Optional can look into.
type unwrapping struct{ timed }

func (u unwrapping) Unwrap() any { return u.Runtime }

// A wrapper hides the optional interfaces of the runtime in it, unless it has a method
// Unwrap.
func ExampleOptional() {
	_, ok := runtime.Optional[runtime.EventSource](quiet{})
	fmt.Println("runtime:", ok)
	_, ok = runtime.Optional[runtime.EventSource](timed{quiet{}})
	fmt.Println("wrapped:", ok)
	_, ok = runtime.Optional[runtime.EventSource](unwrapping{timed{quiet{}}})
	fmt.Println("wrapped, with Unwrap:", ok)
	// Output:
	// runtime: true
	// wrapped: false
	// wrapped, with Unwrap: true
}
