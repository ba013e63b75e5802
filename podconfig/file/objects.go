package file

import (
	"context"
	"fmt"
	goruntime "runtime"
	"slices"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Objects returns a source of the secrets and config maps among the manifests. It holds
// them while [Source.Run] runs. It is nil without [Options.Objects].
//
// Objects can be looked up before the pods of the same scan are delivered.
func (s *Source) Objects() objects.Source {
	if s.store == nil {
		return nil // not a store that is nil
	}
	return s.store
}

// Objects is an [objects.Source] that reads secrets and config maps from a directory
// without pods, or from a single file.
type Objects struct {
	runtime.Objects
	source *Source
}

var _ objects.Source = (*Objects)(nil)

// NewObjects returns a source of the secrets and config maps at the path, which need
// not exist yet. It does no I/O until [Objects.Watch] is called. Name, AsKubelet and the
// options about pods have no effect.
func NewObjects(path string, opts Options) *Objects {
	opts.Objects, opts.AsKubelet = true, false
	s := New(path, opts)
	s.onlyObjects = true
	return &Objects{Objects: s.store, source: s}
}

// Watch reads the objects and reports their changes until ctx ends. Then it returns nil.
// It returns an error that wraps [runtime.ErrAlreadyRunning] while another call runs.
func (o *Objects) Watch(ctx context.Context, changed func(refs []objects.Ref)) error {
	sink := problemSink{log: o.source.opts.Logger}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return o.source.Run(gctx, sink) })
	g.Go(func() error { return o.source.store.Watch(gctx, changed) })
	return g.Wait()
}

// problemSink logs the problems of a source without pods.
type problemSink struct {
	podconfig.SinkBase
	log logr.Logger
}

// Reject implements [podconfig.Sink].
func (s problemSink) Reject(_ runtime.PodRef, err error) { s.log.Error(err, "Manifest rejected") }

// mayReplace checks that a file's objects may replace its previous objects.
func mayReplace(old, now []metav1.Object) error {
	before := make(map[objects.Ref]metav1.Object, len(old))
	for _, o := range old {
		before[objects.RefOf(o)] = o
	}
	for _, o := range now {
		was := before[objects.RefOf(o)]
		if was == nil {
			continue
		}
		if errs := manifest.ValidateObjectUpdate(o, was); len(errs) > 0 {
			return fmt.Errorf("%s cannot be changed: %w", objects.RefOf(o), errs.ToAggregate())
		}
	}
	return nil
}

// checkMode logs once, while it lasts, that other users can read a file with secrets.
func (s *state) checkMode(path string, m *manifestFile) {
	mode := m.info.Mode().Perm()
	exposed := mode&0o077 != 0 && goruntime.GOOS != "windows" && slices.ContainsFunc(m.objects, isSecret)
	if exposed && !m.exposed {
		s.opts.Logger.Info("File with secrets can be read by users other than its owner; give it mode 0600",
			"path", path, "mode", fmt.Sprintf("%04o", mode))
	}
	m.exposed = exposed
}

func isSecret(o metav1.Object) bool { return objects.RefOf(o).Kind == objects.SecretKind }
