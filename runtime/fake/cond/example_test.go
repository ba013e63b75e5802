package cond_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime/fake/cond"
)

// A test waits for three changes of a fake.
func Example() {
	var changes atomic.Int32
	var c cond.Cond
	go func() {
		for range 3 {
			changes.Add(1)
			c.Changed()
		}
	}()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := c.Until(ctx, func() bool { return changes.Load() == 3 },
		func() string { return fmt.Sprint(changes.Load(), " changes") })
	fmt.Println(changes.Load(), err)
	// Output: 3 <nil>
}
