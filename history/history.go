package history

import (
	"context"
	"iter"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// History keeps what happened to pods. Its methods are safe for concurrent use.
type History interface {
	// Record adds a record to the history of its pod. It must not block. It is a
	// [runtime.RecordFunc].
	Record(r runtime.Record)
	// Pods returns the pods that have a history, sorted by namespace, name and UID.
	Pods() []Pod
	// Entries returns the history of a pod, in the order of the entries. It is empty if
	// the pod is not known.
	Entries(uid types.UID) []Entry
	// Watch yields the history of a pod, or of all pods if the UID is empty, and then each
	// new entry until ctx ends. A repeat is yielded as an entry with a greater count.
	// Entries that are dropped before a slow reader takes them are skipped.
	Watch(ctx context.Context, uid types.UID) iter.Seq[Entry]
}

// Runner is an optional interface of a [History] that outlives the agent. Callers find it
// with [runtime.Optional].
type Runner interface {
	// Load reads what an earlier agent has kept. It is called once, before the first
	// record. An error means that some of it is lost; the History can be used anyway.
	Load(ctx context.Context) error
	// Run keeps what is recorded until ctx ends, and then the rest.
	Run(ctx context.Context) error
}

// None is a [History] that keeps nothing. An agent that has it records nothing.
type None struct{}

var _ History = None{}

// Record implements [History].
func (None) Record(runtime.Record) {}

// Pods implements [History].
func (None) Pods() []Pod { return nil }

// Entries implements [History].
func (None) Entries(types.UID) []Entry { return nil }

// Watch implements [History]. It yields nothing until ctx ends.
func (None) Watch(ctx context.Context, _ types.UID) iter.Seq[Entry] {
	return func(func(Entry) bool) { <-ctx.Done() }
}

// Pod is a pod that has a history.
type Pod struct {
	runtime.PodRef
	// GoneAt is when the pod was gone. It is zero if the pod is on the node.
	GoneAt time.Time
}

// Entry is a record that is kept. Entries are comparable.
type Entry struct {
	runtime.Record
	// Seq orders the entries of all pods. A repeat gets a new one. It is valid until the
	// agent ends.
	Seq uint64
	// Count is the number of records in this entry. First and Last are the times of the
	// first and of the last one, to the microsecond. The fields of the record are those of
	// the last one.
	Count       int
	First, Last time.Time
}
