package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeletkit/kubeletkit/cluster/podsource"
	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// answerTime is the time in which an API server that can be reached answers a read of the node object.
const answerTime = 5 * time.Second

// Why a restored pod does not start. Both are for users.
var (
	errNotListed = errors.New("the API server can be reached, and has not delivered the list of pods yet; the pod may have been deleted, and run elsewhere")
	errNotInList = errors.New("the API server does not have the pod any more")
)

// firstList keeps the containers of restored pods from starting before the first list of pods, while the API server
// can be reached: a pod that was deleted by force while the node was away may run elsewhere. What runs already goes on.
type firstList struct {
	node   string
	client kubernetes.Interface
	pods   *podsource.Source
	sync   func(uid types.UID)
	log    logr.Logger

	// decided is closed when the first list has come, or the API server could not be reached.
	decided chan struct{}

	mu sync.Mutex
	// held are the pods that were kept from starting. They are synced when it is decided.
	held map[types.UID]struct{}
}

var (
	_ lifecycle.Preparer = (*firstList)(nil)
	_ lifecycle.Runner   = (*firstList)(nil)
)

func newFirstList(node string, client kubernetes.Interface, pods *podsource.Source, sync func(types.UID), log logr.Logger) *firstList {
	return &firstList{
		node: node, client: client, pods: pods, sync: sync, log: log,
		decided: make(chan struct{}), held: map[types.UID]struct{}{},
	}
}

// Name implements [lifecycle.Component].
func (*firstList) Name() string { return "first list of pods" }

// Prepare implements [lifecycle.Preparer].
func (f *firstList) Prepare(ctx context.Context, req lifecycle.PrepareRequest) (none lifecycle.PrepareResponse, err error) {
	pod := req.Pod
	if pod.Annotations[podspec.AnnotationConfigSource] != podspec.SourceAPI {
		return none, nil
	}
	if !f.hold(pod.UID) && !req.Observed.ContainersRunning() {
		// The list comes within milliseconds, and a repetition only after a second.
		select {
		case <-f.decided:
		case <-time.After(answerTime):
		case <-ctx.Done():
			return none, context.Cause(ctx)
		}
	}
	if f.pods.Synced() { // asked first: then the lookup has the whole list
		if _, ok := f.pods.ByUID(pod.UID); !ok {
			return none, errNotInList
		}
		return none, nil
	}
	select {
	case <-f.decided: // without a list
		return none, nil
	default:
		return none, errNotListed
	}
}

// hold notes that the pod waits, and returns false, unless it is decided.
func (f *firstList) hold(uid types.UID) (decided bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.decided:
		return true
	default:
		f.held[uid] = struct{}{}
		return false
	}
}

// decide ends the wait of all pods.
func (f *firstList) decide() {
	f.mu.Lock()
	held := f.held
	f.held = nil
	if held != nil {
		close(f.decided)
	}
	f.mu.Unlock()
	for uid := range held {
		f.sync(uid)
	}
}

// PodsChanged implements [podsource.Observer].
func (f *firstList) PodsChanged(c podsource.Change) {
	if c.Complete {
		f.decide()
	}
}

// Run implements [lifecycle.Runner]. It tests whether the API server can be reached, until it is decided.
func (f *firstList) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var ended sync.WaitGroup
	defer ended.Wait()
	defer cancel() // before the wait
	ended.Go(func() {
		select {
		case <-f.decided:
			cancel() // the read of the node object, too
		case <-ctx.Done():
		}
	})
	for ctx.Err() == nil {
		err := f.reach(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			f.log.Info("The API server cannot be reached; the pods of the checkpoint start without it", "err", err.Error())
			f.decide()
			break
		}
		flow.Sleep(ctx, answerTime)
	}
	return nil
}

// reach returns an error unless the API server answers. One that refuses the credentials of the node will
// not deliver a list either.
func (f *firstList) reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	node, err := f.client.CoreV1().Nodes().Get(ctx, f.node, metav1.GetOptions{})
	switch {
	case err == nil && node.Name != f.node:
		return errors.New("the answer is no node object")
	case apierrors.IsUnexpectedServerError(err): // for example the 404 of a proxy
		return err
	case apierrors.IsNotFound(err), apierrors.IsTooManyRequests(err):
		return nil
	}
	return err
}
