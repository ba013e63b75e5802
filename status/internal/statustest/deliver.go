package statustest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/status/fake"
)

func testDeliversTheLatest(e *env) {
	e.sink.SetDelay(time.Second)
	for i := range 10 {
		e.m.Set(pod("a"), phase(v1.PodRunning, fmt.Sprint(i)))
		synctest.Wait()
		e.m.Set(pod("b"), phase(v1.PodRunning, fmt.Sprint(i)))
		time.Sleep(300 * time.Millisecond)
	}
	e.settle()
	for _, uid := range []types.UID{"a", "b"} {
		last, ok := e.sink.Latest(uid)
		require.True(e, ok)
		assert.Equal(e, "9", last.Message)
		assert.Less(e, len(e.calls(uid)), 10, "changes while a delivery is under way are delivered together")
	}
}

func testDeliversChangesOnly(e *env) {
	for range 3 {
		e.m.Set(pod("a"), phase(v1.PodRunning, "1"))
		e.settle()
	}
	e.m.Set(pod("a"), phase(v1.PodRunning, "2"))
	e.settle()
	assert.Equal(e, []string{"Running 1", "Running 2"}, e.calls("a"))
}

func testDeliversWhatWasSetBeforeRun(e *env) {
	sink := fake.NewSink()
	m := e.f.New(e.T, status.Options{Sink: sink})
	m.Set(pod("a"), phase(v1.PodRunning, ""))
	e.settle()
	assert.Empty(e, sink.Calls(""), "without Run nothing is delivered")
	ctx, cancel := context.WithCancel(e.Context())
	ran := make(chan error, 1)
	go func() { ran <- m.Run(ctx) }()
	e.settle()
	assert.Len(e, sink.Calls("a"), 1)
	cancel()
	require.NoError(e, <-ran)
}

func testDeliversTermination(e *env) {
	e.m.Set(pod("a"), phase(v1.PodSucceeded, ""))
	e.settle()
	e.m.Set(pod("b"), phase(v1.PodRunning, ""))
	e.settle()
	for range 2 {
		e.m.Terminate(pod("a"))
		e.m.Terminate(pod("b"))
		e.settle()
	}
	assert.Equal(e, []string{"Running ", "Failed "}, e.calls("b"))
	for i, list := 1, e.sink.Deliveries("a"); i < len(list); i++ {
		assert.NotEqual(e, list[i-1].Status, list[i].Status, "a status that equals the last one is not delivered")
	}
	e.m.PodFinished(runtime.RefOf(pod("a")))
	assert.Equal(e, []types.UID{"a"}, e.sink.Finished())
}

// testOneDeliveryPerPod relies on the check for overlaps at the end of each test.
func testOneDeliveryPerPod(e *env) {
	e.sink.SetHook(func(_ context.Context, d fake.Delivery) error {
		time.Sleep(time.Duration(len(d.Status.Message)) * 100 * time.Millisecond)
		if len(d.Status.Message)%3 == 1 {
			return errBroken
		}
		return nil
	})
	for i := range 50 {
		e.m.Set(pod("a"), phase(v1.PodRunning, strings.Repeat("x", i)))
		time.Sleep(500 * time.Millisecond)
	}
	e.m.Set(pod("a"), phase(v1.PodRunning, strings.Repeat("x", 60)))
	e.settle()
	length := 0
	for _, d := range e.sink.Calls("a") {
		assert.GreaterOrEqual(e, len(d.Status.Message), length, "an older status was delivered after a newer one")
		length = len(d.Status.Message)
	}
	assert.Equal(e, 60, length)
}

func testPodsSideBySide(e *env) {
	var both sync.WaitGroup
	both.Add(2)
	e.sink.SetHook(func(context.Context, fake.Delivery) error {
		both.Done()
		both.Wait() // a deadlock if one pod waits for the other
		return nil
	})
	e.m.Set(pod("a"), phase(v1.PodRunning, ""))
	e.m.Set(pod("b"), phase(v1.PodRunning, ""))
	e.settle()
	assert.Len(e, e.sink.Calls(""), 2)
}

func testRepeatsFailures(e *env) {
	e.sink.Fail(5, errBroken)
	e.m.Set(pod("a"), phase(v1.PodRunning, "1"))
	synctest.Wait()
	e.m.Set(pod("a"), phase(v1.PodRunning, "2"))
	e.settle()
	assert.Equal(e, []string{"!Running 1", "!Running 2", "!Running 2", "!Running 2", "!Running 2", "Running 2"},
		e.calls("a"))
	all := e.sink.Calls("a")
	for i := range all[1:] {
		assert.Positive(e, all[i+1].At.Sub(all[i].At), "there is a back-off")
	}
}

func testDeliversAgain(e *env) {
	e.sink.Request("unknown")
	e.m.Set(pod("a"), phase(v1.PodRunning, "1"))
	e.settle()
	e.sink.Request("a")
	e.settle()
	require.Equal(e, []string{"Running 1", "Running 1"}, e.calls("a"))
	e.sink.SetDelay(time.Second)
	e.m.Set(pod("a"), phase(v1.PodRunning, "2"))
	synctest.Wait()
	for range 3 { // while a call is under way
		e.sink.Request("a")
	}
	e.settle()
	assert.Equal(e, []string{"Running 2", "Running 2"}, e.calls("a")[2:])
	assert.Empty(e, e.sink.Calls("unknown"))
}

func testRefused(e *env) {
	e.sink.Fail(-1, fmt.Errorf("no address: %w", status.ErrRefused))
	e.m.Set(pod("a"), phase(v1.PodRunning, "1"))
	e.m.Set(pod("b"), phase(v1.PodRunning, "1"))
	e.settle()
	assert.Less(e, len(e.calls("a")), 40, "less and less often")
	e.sink.Fail(0, nil)
	e.m.Set(pod("a"), phase(v1.PodRunning, "2"))
	time.Sleep(3 * time.Second)
	assert.Equal(e, []string{"Running 2"}, e.accepted("a"), "a change is delivered at once")
	e.settle()
	assert.Equal(e, []string{"Running 1"}, e.accepted("b"))

	e.sink.SetDelay(time.Second)
	e.sink.Fail(1, fmt.Errorf("the name is taken: %w", status.ErrRefused))
	e.m.Set(pod("c"), phase(v1.PodRunning, "1"))
	synctest.Wait()
	e.sink.Request("c") // the name is free by the time of the refusal
	time.Sleep(2500 * time.Millisecond)
	assert.Equal(e, []string{"!Running 1", "Running 1"}, e.calls("c"), "a request during the call is not lost")
}

func testErrGone(e *env) {
	e.sink.Fail(-1, fmt.Errorf("status 404: %w", status.ErrGone))
	e.m.Set(pod("a"), phase(v1.PodRunning, "1"))
	e.settle()
	assert.Equal(e, []string{"!Running 1"}, e.calls("a"))
	e.m.Set(pod("a"), phase(v1.PodRunning, "2"))
	e.settle()
	assert.Equal(e, []string{"!Running 1", "!Running 2"}, e.calls("a"), "a change is delivered nevertheless")
}

// testHang has many calls of the sink not return, even after their context has
// ended.
func testHang(e *env) {
	release := make(chan struct{})
	e.sink.SetHook(func(_ context.Context, d fake.Delivery) error {
		if d.Status.Message == "hang" {
			<-release
		}
		return nil
	})
	const many = 100
	for i := range many {
		e.m.Set(pod(types.UID(fmt.Sprint(i))), phase(v1.PodRunning, "hang"))
	}
	synctest.Wait()
	e.m.Set(pod("a"), phase(v1.PodRunning, ""))
	e.m.Set(pod("0"), phase(v1.PodRunning, "latest"))
	e.settle()
	assert.Equal(e, []string{"Running "}, e.calls("a"), "other pods go on")
	assert.Empty(e, e.calls("0"), "a pod waits for its delivery that hangs")
	require.ErrorContains(e, e.m.Healthy(), "default/")
	close(release)
	e.settle()
	require.NotEmpty(e, e.calls("0"))
	assert.Equal(e, "Running latest", e.calls("0")[len(e.calls("0"))-1])
	require.NoError(e, e.m.Healthy())
}

func testHoldsBackFinalPhase(e *env) {
	disrupted := phase(v1.PodFailed, "no memory left")
	disrupted.Conditions = []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}}
	e.running["a"], e.running["b"] = true, true
	e.m.Set(pod("a"), phase(v1.PodRunning, ""))
	e.m.Set(pod("a"), disrupted)
	e.m.Set(pod("b"), disrupted)
	e.m.Set(pod("c"), disrupted)
	e.settle()
	assert.Equal(e, v1.PodFailed, e.get("a").Phase, "Get returns it at once")
	a, _ := e.sink.Latest("a")
	assert.Equal(e, v1.PodRunning, a.Phase)
	assert.Empty(e, a.Message)
	for _, c := range a.Conditions {
		assert.NotEqual(e, v1.DisruptionTarget, c.Type)
	}
	b, _ := e.sink.Latest("b")
	assert.Equal(e, v1.PodPending, b.Phase)
	c, _ := e.sink.Latest("c")
	assert.Equal(e, v1.PodFailed, c.Phase, "nothing of it may run")

	e.m.Terminate(pod("a"))
	e.settle()
	a, _ = e.sink.Latest("a")
	assert.Equal(e, v1.PodFailed, a.Phase)
	assert.Equal(e, "no memory left", a.Message)
	e.running["b"] = false
	e.m.Set(pod("b"), disrupted)
	e.settle()
	b, _ = e.sink.Latest("b")
	assert.Equal(e, v1.PodFailed, b.Phase)
}

func testRecheck(e *env) {
	e.running["a"], e.running["b"] = true, true
	e.m.Set(pod("a"), phase(v1.PodFailed, ""))
	e.m.Set(pod("b"), phase(v1.PodFailed, ""))
	e.settle()
	e.running["a"] = false
	e.m.Recheck()
	e.m.Recheck()
	e.settle()
	assert.Equal(e, []string{"Pending ", "Failed "}, e.calls("a"))
	assert.Equal(e, []string{"Pending "}, e.calls("b"))

	e.m.Forget("b")
	e.m.Recheck()
	e.settle()
	b, _ := e.sink.Latest("b")
	assert.Equal(e, v1.PodFailed, b.Phase)
}

func testDeliversForgotten(e *env) {
	e.m.Set(pod("a"), phase(v1.PodRunning, ""))
	e.m.Forget("a")
	e.running["b"] = true
	e.m.Set(pod("b"), phase(v1.PodFailed, ""))
	e.settle()
	e.m.Prune(func(types.UID) bool { return false })
	e.settle()
	a, _ := e.sink.Latest("a")
	assert.Equal(e, v1.PodRunning, a.Phase)
	b, _ := e.sink.Latest("b")
	assert.Equal(e, v1.PodFailed, b.Phase, "a pod that is gone has nothing that runs")

	// If the sink fails, the status of a pod that is gone is not repeated for ever.
	e.sink.Fail(-1, errBroken)
	e.m.Set(pod("c"), phase(v1.PodRunning, ""))
	time.Sleep(time.Minute)
	before := len(e.sink.Deliveries("c"))
	e.m.Forget("c")
	e.settle()
	assert.LessOrEqual(e, len(e.sink.Deliveries("c")), before+1)
	e.sink.Fail(0, nil)
	e.settle()
}

// testRunJoins ends Run while a call of the sink is under way.
func testRunJoins(e *env) {
	ended := false
	e.sink.SetHook(func(ctx context.Context, _ fake.Delivery) error {
		<-ctx.Done()
		time.Sleep(time.Second)
		ended = true
		return ctx.Err()
	})
	e.m.Set(pod("a"), phase(v1.PodRunning, ""))
	synctest.Wait()
	e.cancel()
	err := <-e.ran
	assert.True(e, ended, "Run returned before a call of the sink")
	e.ran <- err
}
