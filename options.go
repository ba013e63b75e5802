package kubeletkit

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// Options compose an [Agent]. Runtime and NodeName are required.
type Options struct {
	// NodeName names the node; static pods carry it as a suffix.
	NodeName string
	// RootDir holds what the agent keeps on disk: the pods' directories under
	// "pods". Default /var/lib/kubeletkit.
	RootDir string
	// PodLogsDir is where the runtime writes the containers' output. It must be this
	// agent's alone: what is named <namespace>_<name>_<uid> in it and belongs to no
	// pod of its own is removed. Default /var/log/pods, as kubelet.
	PodLogsDir string

	// Runtime runs the pods, as runtime/cri.Dial returns it. The agent does not
	// close it.
	Runtime runtime.Runtime
	// Sources say which pods are wanted.
	Sources []podconfig.Source
	// PLEG finds what has changed in the runtime. nil: pleg.Evented if Runtime is a
	// runtime.EventSource, else pleg.Generic. One that is given must fill Cache.
	PLEG pleg.Generator
	// Cache of runtime statuses. nil: one of its own. Give it together with a PLEG.
	Cache *runtime.Cache
	// StatusSink is told the status of each pod. nil: nobody is told; see
	// [Agent.Pods].
	StatusSink status.Sink
	// Objects has the secrets and config maps that pods refer to. Without it such
	// references lead nowhere. nil: there are none.
	Objects objects.Source
	// Checkpoint keeps the pods that were admitted, and the secrets and config maps that
	// they refer to, so that they come back after a reboot though no source can be
	// reached. It belongs to this agent alone. nil: nothing is kept.
	Checkpoint *checkpoint.Store
	// PullSecrets returns the image pull secrets of a pod. nil: those of Objects that
	// the pod names.
	PullSecrets func(ctx context.Context, pod *v1.Pod) ([]v1.Secret, error)
	// Event receives what a user would want to see of pods, with repeats merged. nil:
	// events are logged.
	Event runtime.EventFunc

	// Host is what pods may know of the machine. nil: what [DetectHost] finds.
	Host *runtime.Host
	// Limits of what the node takes on; the zero value limits nothing.
	Limits syncloop.Limits
	// SyncFrequency is the time between two looks at a pod to which nothing happens.
	// Default 1 minute, as kubelet.
	SyncFrequency time.Duration
	// GC says what dead containers may stay. Default: the newest of each.
	GC gc.Policy
	// Logger. Default: discards.
	Logger logr.Logger
}

// complete fills in the defaults and returns all that is wrong at once.
func (o *Options) complete() error {
	var errs []error
	if o.Runtime == nil {
		errs = append(errs, errors.New("Options.Runtime is required; runtime/cri.Dial makes one from a CRI socket"))
	}
	if problems := validation.IsDNS1123Subdomain(strings.ToLower(o.NodeName)); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("Options.NodeName %q: %s", o.NodeName, strings.Join(problems, "; ")))
	}
	for _, dir := range []struct {
		name  string
		value *string
		def   string
	}{{"RootDir", &o.RootDir, "/var/lib/kubeletkit"}, {"PodLogsDir", &o.PodLogsDir, "/var/log/pods"}} {
		if *dir.value == "" {
			*dir.value = dir.def
		}
		if !filepath.IsAbs(*dir.value) {
			errs = append(errs, fmt.Errorf("field Options.%s %q: must be an absolute path", dir.name, *dir.value))
		}
	}
	if o.PLEG != nil && o.Cache == nil {
		errs = append(errs, errors.New("with Options.PLEG, Options.Cache is required: the PLEG must fill the cache that the workers read"))
	}
	if o.SyncFrequency <= 0 {
		o.SyncFrequency = time.Minute
	}
	if o.Logger.IsZero() {
		o.Logger = logr.Discard()
	}
	return errors.Join(errs...)
}
