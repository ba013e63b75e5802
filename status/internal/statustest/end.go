package statustest

import (
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

func testEnd(e *env) {
	e.m.Set(pod("a"), phase(v1.PodRunning, ""))
	e.m.Set(pod("b"), phase(v1.PodRunning, ""))
	e.m.Set(pod("c"), phase(v1.PodRunning, "stays"))
	e.settle()
	e.m.Terminate(pod("a"))
	e.m.Forget("a")
	e.m.PodEnded(runtime.RefOf(pod("b")))
	e.settle()
	assert.Equal(e, []string{"Running ", "Failed ", "gone Failed "}, e.calls("a"))
	assert.Equal(e, []string{"Running ", "gone Running "}, e.calls("b"))
	_, ok := e.m.Get("b")
	assert.False(e, ok)
	assert.Equal(e, []string{"Running stays"}, e.calls("c"))

	// A final phase that is held back is delivered before the end.
	e.running["d"] = true
	e.m.Set(pod("d"), phase(v1.PodFailed, "refused"))
	e.settle()
	e.m.Forget("d")
	e.settle()
	assert.Equal(e, []string{"Pending ", "Failed refused", "gone Failed refused"}, e.calls("d"))
}

func testEndOfUnknownPod(e *env) {
	e.m.PodEnded(runtime.RefOf(pod("a")))
	e.settle()
	require.Equal(e, []string{"gone  "}, e.calls("a"))
	assert.Equal(e, runtime.RefOf(pod("a")), e.sink.Calls("a")[0].Pod)
}

func testEndIsRepeated(e *env) {
	e.m.Set(pod("a"), phase(v1.PodFailed, ""))
	e.settle()
	e.sink.Fail(-1, errBroken)
	e.m.Forget("a")
	e.m.PodEnded(runtime.RefOf(pod("b")))
	e.settle()
	e.settle()
	assert.False(e, e.sink.Gone("a"))
	assert.Greater(e, len(e.calls("a")), 10)
	e.sink.Fail(0, nil)
	e.settle()
	assert.True(e, e.sink.Gone("a"))
	assert.True(e, e.sink.Gone("b"))

	e.sink.Fail(-1, status.ErrGone)
	e.m.PodEnded(runtime.RefOf(pod("c")))
	e.settle()
	assert.Len(e, e.calls("c"), 1, "ErrGone is as good as nil")
	before := len(e.sink.Calls(""))
	e.settle()
	assert.Len(e, e.sink.Calls(""), before)
}

// testEndBeforeNextPod has a UID come again, as that of a static pod does whose
// manifest comes back.
func testEndBeforeNextPod(e *env) {
	e.sink.SetDelay(time.Second)
	e.m.Set(pod("a"), phase(v1.PodRunning, "1"))
	synctest.Wait()
	e.m.Set(pod("a"), phase(v1.PodFailed, "1"))
	e.m.Forget("a")
	e.m.Set(pod("a"), phase(v1.PodPending, "2"))
	assert.Equal(e, v1.PodPending, e.get("a").Phase)
	e.settle()
	require.Equal(e, []string{"Running 1", "Failed 1", "gone Failed 1", "Pending 2"}, e.calls("a"))

	e.sink.Fail(3, errBroken)
	e.m.Set(pod("a"), phase(v1.PodFailed, "2"))
	synctest.Wait()
	e.m.Forget("a")
	e.m.Set(pod("a"), phase(v1.PodPending, "3"))
	e.settle()
	calls := e.accepted("a")[4:]
	require.GreaterOrEqual(e, len(calls), 2)
	assert.Equal(e, []string{"gone Failed 2", "Pending 3"}, calls[len(calls)-2:])
	assert.False(e, e.sink.Gone("a"))
}
