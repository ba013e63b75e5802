package history

import (
	"context"
	"iter"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Store keeps what happened to pods. Its methods are safe for concurrent use.
type Store interface {
	// Record adds a record to the history of its pod. It is a [runtime.RecordFunc]. An agent does not wait for it,
	// except for that of a [*Memory], which never blocks.
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
	// Load reads what an earlier agent has kept. It is called once, before the first
	// record. An error means that some of it is lost; the Store can be used anyway.
	Load(ctx context.Context) error
	// Run keeps what is recorded for the next agent until ctx ends, and then the rest.
	Run(ctx context.Context) error
}

// None is a [Store] that keeps nothing. An agent that has it records nothing. Embed it in
// implementations, so that methods added later do not break them.
type None struct{}

var _ Store = None{}

// Record implements [Store].
func (None) Record(runtime.Record) {}

// Pods implements [Store].
func (None) Pods() []Pod { return nil }

// Entries implements [Store].
func (None) Entries(types.UID) []Entry { return nil }

// Watch implements [Store]. It yields nothing until ctx ends.
func (None) Watch(ctx context.Context, _ types.UID) iter.Seq[Entry] {
	return func(func(Entry) bool) { <-ctx.Done() }
}

// Load implements [Store].
func (None) Load(context.Context) error { return nil }

// Run implements [Store]. It waits until ctx ends.
func (None) Run(ctx context.Context) error { <-ctx.Done(); return nil }

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
