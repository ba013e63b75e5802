package runtimeclass

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeletkit/kubeletkit/cluster/internal/listwatch"
	"github.com/kubeletkit/kubeletkit/cluster/internal/table"
	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// ErrNotRead is returned by [Classes.Handler] while the runtime classes are not known.
var ErrNotRead = errors.New("runtime classes have not been read from the API server yet")

// Options are the settings of [Classes]. The zero value is valid.
type Options struct {
	// Checkpoint keeps the classes, under the name "runtimeclasses". nil: nothing is kept.
	Checkpoint runtime.States
	// Appeared is called for each class for which Handler has failed, when the class is known.
	// It must not block. Have the pods of the class synced, so that they start at once. nil:
	// nothing is called; the pods start with their next try.
	Appeared func(class string)
	// Logger. Default: that of package slog.
	Logger logr.Logger
}

// Classes are the runtime classes of a cluster. Its methods are safe for concurrent use.
type Classes struct {
	table *table.Table[string] // handlers, by the name of the class
}

// New returns the runtime classes of the cluster. It does no I/O.
func New(client kubernetes.Interface, opts Options) (*Classes, error) {
	opts.Logger = logging.OrDefault(opts.Logger)
	if client == nil {
		return nil, errors.New("runtimeclass: the client is nil")
	}
	c := &Classes{}
	c.table = table.New(table.Options[string]{
		Resource: listwatch.Resource{
			Name: "runtimeclasses", Client: client, Type: &nodev1.RuntimeClass{},
			API:        listwatch.Of(client.NodeV1().RuntimeClasses()),
			MaxBackoff: 5 * time.Second,
		},
		Reduce: func(object any) (string, string, bool) {
			o, ok := object.(*nodev1.RuntimeClass)
			if !ok {
				return "", "", false
			}
			return o.Name, o.Handler, true
		},
		Has: func(class string, handlers map[string]string) bool {
			_, ok := handlers[class]
			return ok
		},
		Checkpoint: opts.Checkpoint, State: "runtimeclasses", Ready: opts.Appeared, Logger: opts.Logger,
	})
	return c, nil
}

// Run watches the runtime classes until ctx ends, and then returns nil. A second call
// returns an error that wraps runtime.ErrAlreadyRunning.
func (c *Classes) Run(ctx context.Context) error {
	if err := c.table.Run(ctx); err != nil {
		return fmt.Errorf("runtimeclass: %w", err)
	}
	return nil
}

// Handler returns the handler of the runtime class; "" for the class "". The error is a
// NotFound error of apimachinery, or wraps [ErrNotRead].
func (c *Classes) Handler(class string) (handler string, err error) {
	if class == "" {
		return "", nil
	}
	var found bool
	err = c.table.Read(nil, class, func(handlers map[string]string) { handler, found = handlers[class] })
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: %w", ErrNotRead, err)
	case !found:
		return "", apierrors.NewNotFound(nodev1.Resource("runtimeclass"), class)
	default:
		return handler, nil
	}
}
