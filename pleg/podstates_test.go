package pleg

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// book drives podStates by hand, as the scenarios of testdata do. Marks are drawn from a counter of its own.
type book struct {
	t    *testing.T
	rs   podStates
	mark runtime.Mark
	// known is the mark of the newest status that the cache has of a pod.
	known map[types.UID]runtime.Mark
	// statuses are those that came into the cache before the next relist.
	statuses []*runtime.PodStatus
}

func newBook(t *testing.T) *book { return &book{t: t, known: map[types.UID]runtime.Mark{}} }

func (b *book) draw() runtime.Mark { b.mark++; return b.mark }

// ready takes the pending events.
func (b *book) ready() []string {
	ready := []string{}
	for next, ok := b.rs.pending.first(); ok; next, ok = b.rs.pending.first() {
		ready = append(ready, fmt.Sprint(next.Pod.UID, words(next.Events)))
		b.rs.pending.removeFirst()
	}
	return ready
}

// requested takes the requested inspections.
func (b *book) requested() []*podState {
	requested := b.rs.inspections.queue
	b.rs.inspections.queue = nil
	return requested
}

// relist returns what became ready and what is to be inspected.
func (b *book) relist(pods ...*runtime.Pod) (ready []string, inspect []*podState) {
	list := b.begin()
	ready = b.ready()
	list(pods...)
	return append(ready, b.ready()...), b.requested()
}

// begin begins a list call. The function that it returns ends it.
func (b *book) begin() (list func(...*runtime.Pod) []runtime.PodRef) {
	w := window{began: b.draw()}
	b.rs.beginRelist(b.statuses)
	return func(pods ...*runtime.Pod) (unreported []runtime.PodRef) {
		w.ended = b.draw()
		return b.rs.relisted(pods, w, func(uid types.UID, mark runtime.Mark) bool {
			if b.known[uid] > mark {
				return false
			}
			delete(b.known, uid)
			return true
		})
	}
}

// read returns a status that is read now.
func (b *book) read(parts ...any) *runtime.PodStatus {
	status := statusOf(parts...)
	status.Mark = b.draw()
	return status
}

// land ends an inspection with a status that is read now and shows the pod as it
// was listed. It returns the events that became ready.
func (b *book) land(r *podState) []string {
	listed := r.listed
	if listed == nil {
		listed = podOf()
	}
	b.inspected(r, b.read(parts(listed)...))
	return b.ready()
}

// inspected ends an inspection.
func (b *book) inspected(r *podState, statuses ...*runtime.PodStatus) (useful, again bool) {
	return b.rs.inspected(r, statuses)
}

// hint hints at a pod, and returns what is to be inspected.
func (b *book) hint(h runtime.Hint, known ...*runtime.PodStatus) []*podState {
	b.rs.hinted(podHints{}.with(h, b.draw()), known)
	return b.requested()
}

// parts is the inverse of podOf.
func parts(pod *runtime.Pod) []any {
	var parts []any
	for _, s := range pod.Sandboxes {
		parts = append(parts, s)
	}
	for _, c := range pod.Containers {
		parts = append(parts, c)
	}
	return parts
}

// fly begins an inspection that is expected to be wanted.
func (b *book) fly(r *podState) runtime.Mark {
	after, wanted := r.beginInspection()
	require.True(b.t, wanted)
	return after
}

func TestRelistedWithoutChangeAllocatesNothing(t *testing.T) {
	b := newBook(t)
	var pods []*runtime.Pod
	for i := range 100 {
		pod := podOf(sbx("s", "ready"), ctr("a", "running"), ctr("b", "exited"))
		pod.UID = types.UID(fmt.Sprint(i))
		pods = append(pods, pod)
	}
	_, inspect := b.relist(pods...)
	for _, r := range inspect {
		b.fly(r)
		b.land(r)
	}
	never := func(types.UID, runtime.Mark) bool { panic("no pod is gone") }
	assert.Zero(t, testing.AllocsPerRun(10, func() {
		b.rs.beginRelist(nil)
		b.rs.relisted(pods, window{}, never)
	}))
}

// statusOf is a status that shows what a list would.
func statusOf(parts ...any) *runtime.PodStatus {
	pod := podOf(parts...)
	status := &runtime.PodStatus{PodRef: pod.PodRef}
	for _, s := range pod.Sandboxes {
		status.Sandboxes = append(status.Sandboxes, runtime.SandboxStatus{Sandbox: s})
	}
	for _, c := range pod.Containers {
		status.Containers = append(status.Containers, runtime.ContainerStatus{Container: c})
	}
	return status
}

// TestRecordsOfStatusAndListSideBySide: a status and a list overlap, either may be
// the newer one and either may come first. All that happened is reported once.
func TestRecordsOfStatusAndListSideBySide(t *testing.T) {
	before := podOf(sbx("s", "ready"), ctr("a", "running"), ctr("b", "exited"))
	after := podOf(sbx("s", "ready"), ctr("c", "running"), ctr("a", "exited"))
	happened := []string{"ContainerDied a", "ContainerRemoved b", "ContainerStarted c"}
	for _, tc := range []struct {
		name                string
		listed, read, truth *runtime.Pod
		want                []string
	}{
		{"nothing happened", before, before, before, nil},
		{"the status is newer", before, after, after, happened},
		{"the list is newer", after, before, after, happened},
		{"each knows something", podOf(sbx("s", "ready"), ctr("a", "exited"), ctr("b", "exited")),
			podOf(sbx("s", "not-ready"), ctr("a", "running"), ctr("b", "exited")),
			podOf(sbx("s", "not-ready"), ctr("a", "exited"), ctr("b", "exited")),
			[]string{"ContainerDied a", "SandboxDied s"}},
		{"each shows what soon is gone", podOf(sbx("s", "ready"), ctr("c", "exited"), ctr("a", "running"), ctr("b", "exited")),
			podOf(sbx("s", "ready"), ctr("d", "running"), ctr("a", "running"), ctr("b", "exited")), before,
			[]string{"ContainerDied c", "ContainerDied d", "ContainerRemoved c", "ContainerRemoved d",
				"ContainerStarted d"}},
		{"the pod is gone, as the status knows", before, podOf(), podOf(),
			[]string{"ContainerDied a", "ContainerRemoved a", "ContainerRemoved b", "SandboxDied s",
				"SandboxRemoved s"}},
	} {
		for _, first := range []string{"list", "status"} {
			t.Run(tc.name+"/first the "+first, func(t *testing.T) {
				b := newBook(t)
				var reported []string
				take := func() {
					for next, ok := b.rs.pending.first(); ok; next, ok = b.rs.pending.first() {
						reported = append(reported, words(next.Events)...)
						b.rs.pending.removeFirst()
					}
				}
				_, inspect := b.relist(before)
				r := inspect[0]
				b.fly(r)
				b.land(r)

				require.Equal(t, []*podState{r}, b.hint(runtime.Hint{Pod: r.ref}))
				b.fly(r)
				list := b.begin()
				take()
				status := b.read(parts(tc.read)...)
				if first == "list" {
					list(tc.listed)
					take()
					require.Empty(t, b.requested(), "one is under way")
					b.inspected(r, status)
				} else {
					b.inspected(r, status)
					take()
					list(tc.listed)
				}
				take()
				again := b.requested()
				if tc.want == nil {
					assert.Empty(t, again)
				}
				for _, r := range again {
					b.fly(r)
					b.inspected(r, b.read(parts(tc.truth)...))
					take()
				}
				slices.Sort(reported)
				assert.Equal(t, tc.want, reported)

				// The next relist finds nothing any more.
				var pods []*runtime.Pod
				if len(parts(tc.truth)) > 0 {
					pods = append(pods, tc.truth)
				}
				ready, inspect := b.relist(pods...)
				assert.Empty(t, ready)
				assert.Empty(t, inspect)
				assert.Len(t, b.rs.pods, len(pods))
			})
		}
	}
}
