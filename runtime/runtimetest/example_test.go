package runtimetest_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
)

// testConformance is what a runtime's package has as TestConformance. This one tests
// the fake, in virtual time.
func testConformance(t *testing.T) {
	dir := t.TempDir()
	runtimetest.Suite(t, runtimetest.Factory{VirtualTime: true, New: func(t *testing.T) *runtimetest.Subject {
		rt := fake.New(fake.Options{Dir: dir, Behavior: program})
		t.Cleanup(func() { _ = rt.Close() })
		return &runtimetest.Subject{
			Runtime: rt, Host: rt.Host(), Dir: dir, Image: "image:1",
			Sleep: []string{"sleep"},
			Exit: func(after time.Duration, code int32) []string {
				return []string{"exit", after.String(), strconv.Itoa(int(code))}
			},
		}
	}})
}

// The function passes helps only this example: go test calls a TestConformance.
func Example() {
	fmt.Println("the fake conforms:", passes(testConformance))
	// Output: the fake conforms: true
}
