package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeletkit/kubeletkit/cluster/podsource"
	"github.com/kubeletkit/kubeletkit/internal/flow"
)

// answerTime is the time in which an API server that can be reached answers a read of the node object.
const answerTime = 5 * time.Second

// firstList keeps restored pods from being desired before the first list of pods, while the API server can be reached:
// the list comes soon then, and a pod that was deleted by force while the node was away may run elsewhere. What runs
// already goes on.
type firstList struct {
	node   string
	client kubernetes.Interface
	log    logr.Logger

	// listed is closed when the first list has come, unreachable when the API server could not be reached before.
	listed, unreachable chan struct{}
	once                sync.Once // of listed
}

func newFirstList(node string, client kubernetes.Interface, log logr.Logger) *firstList {
	return &firstList{node: node, client: client, log: log, listed: make(chan struct{}),
		unreachable: make(chan struct{})}
}

// PodsChanged is an observer of the source.
func (f *firstList) PodsChanged(c podsource.Change) {
	if c.Complete {
		f.once.Do(func() { close(f.listed) })
	}
}

// run tests whether the API server can be reached, until it cannot, the first list has come, or ctx ends. It is called
// again if the source has failed.
func (f *firstList) run(ctx context.Context) {
	select {
	case <-f.unreachable:
		return
	default:
	}
	ctx, cancel := context.WithCancel(ctx)
	var ended sync.WaitGroup
	defer ended.Wait()
	defer cancel() // before the wait
	ended.Go(func() {
		select {
		case <-f.listed:
			cancel() // the read of the node object, too
		case <-ctx.Done():
		}
	})
	for ctx.Err() == nil {
		err := f.reach(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			f.log.Info("The API server cannot be reached; the pods of the checkpoint start without it",
				"err", err.Error())
			close(f.unreachable)
			return
		}
		flow.Sleep(ctx, answerTime)
	}
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
