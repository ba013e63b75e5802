package csi_test

import (
	"context"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/csidriver"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/node/volume/csi"
	"github.com/kubeletkit/kubeletkit/node/volume/volumetest"
)

// patient repeats calls that a driver refuses since it still does the work of a call that was cancelled.
type patient struct{ *csi.Plugin }

func (patient) again(ctx context.Context, call func() error) error {
	for {
		err := call()
		if status.Code(err) != codes.Aborted || ctx.Err() != nil {
			return err
		}
		runtime.Gosched()
	}
}

func (p patient) Stage(ctx context.Context, req volume.PersistentRequest) error {
	return p.again(ctx, func() error { return p.Plugin.Stage(ctx, req) })
}

func (p patient) Publish(ctx context.Context, req volume.PersistentRequest) (out volume.Published, err error) {
	err = p.again(ctx, func() (err error) {
		out, err = p.Plugin.Publish(ctx, req)
		return err
	})
	return out, err
}

func (p patient) Unpublish(ctx context.Context, req volume.UnpublishRequest) error {
	return p.again(ctx, func() error { return p.Plugin.Unpublish(ctx, req) })
}

func (p patient) Unstage(ctx context.Context, req volume.UnpublishRequest) error {
	return p.again(ctx, func() error { return p.Plugin.Unstage(ctx, req) })
}

func TestConformance(t *testing.T) {
	for _, c := range []struct {
		name   string
		set    func(o *csidriver.Options)
		volume []func(*v1.PersistentVolume)
		inline bool
	}{
		{name: "staged"},
		{name: "not staged", set: func(o *csidriver.Options) { o.NodeCapabilities = without(stageCapability) }},
		{name: "block", volume: []func(*v1.PersistentVolume){block}},
		{name: "block not staged", volume: []func(*v1.PersistentVolume){block},
			set: func(o *csidriver.Options) { o.NodeCapabilities = without(stageCapability) }},
		{name: "inline", inline: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			opts := csidriver.Options{Links: os.Geteuid() != 0}
			if c.set != nil {
				c.set(&opts)
			}
			r := newRig(t, opts)
			f := volumetest.PersistentFactory{New: func(*testing.T) volume.PersistentPlugin {
				// With the agent the driver: it may not have begun a call that was cancelled, and would
				// unpublish what the next agent has published.
				r.end()
				r.stop()
				r.startDriver()
				r.start()
				return patient{r.plugin}
			}}
			if c.inline {
				f.Inline = new(r.inline("data"))
			} else {
				f.Volume = r.add("data", c.volume...)
			}
			volumetest.PersistentSuite(t, f)
			r.isClean()
			assert.Empty(t, r.driver.Violations())
		})
	}
}
