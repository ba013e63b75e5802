package csi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/loop"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/plugins"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/node/volume/csi/csinode"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Name is the name of the plugin, which is part of paths on disk and of names in the status of the node.
const Name = csinode.PluginName

// DefaultCallTimeout is the default of [Options].CallTimeout (kubelet: csiTimeout).
const DefaultCallTimeout = 2 * time.Minute

// Options are the settings of [New]. The zero value is valid.
type Options struct {
	// CallTimeout is the limit for each call of a driver. Default: [DefaultCallTimeout].
	CallTimeout time.Duration
}

// Plugin sets up the volumes of drivers that are registered with it. It is a [volume.PersistentPlugin], the
// [plugins.Handler] of [plugins.TypeCSI], and a component of an agent. Make one with [New]. It is safe for concurrent
// use.
type Plugin struct {
	volume.PersistentBase
	cluster csinode.Cluster
	rootDir string
	timeout time.Duration
	node    lifecycle.Node
	drivers *drivers
	// before is called before each step that changes the disk, or is a call of a driver. Its error is that of the step.
	// It is for tests; otherwise it is nil.
	before func(step string) error
	// dial connects to an endpoint. Tests in virtual time have one without a socket.
	dial func(ctx context.Context, endpoint string) (net.Conn, error)

	// mu guards the fields below.
	mu sync.Mutex
	// inUse are the volumes that the node uses, by their names in its status.
	inUse map[v1.UniqueVolumeName]struct{}
	// inUseRead means that those of an earlier agent are among them.
	inUseRead bool
	// attached has what the controller of an attached volume hands to its driver, by the key of the volume.
	attached map[string]map[string]string
	// staged are the volumes that this agent has staged, by their keys.
	staged map[string]struct{}
	// usage is what drivers have last answered to NodeGetVolumeStats, by the key of the volume.
	usage map[string]statsv1alpha1.FsStats
	// waiting are the pods that wait for a driver, by its name, and republished the pods with volumes that are
	// published again and again.
	waiting     map[string]map[types.UID]struct{}
	republished map[types.UID]struct{}
}

var (
	_ volume.PersistentPlugin = (*Plugin)(nil)
	_ plugins.Handler         = (*Plugin)(nil)
	_ lifecycle.Joiner        = (*Plugin)(nil)
	_ lifecycle.Runner        = (*Plugin)(nil)
)

// New returns the plugin of a node. rootDir is the root directory of the agent, an absolute path, below which are its
// pods and, in plugins, what is staged. It does no I/O.
func New(cluster csinode.Cluster, rootDir string, opts Options) (*Plugin, error) {
	var errs []error
	if cluster == nil {
		errs = append(errs, errors.New("csi: the cluster is nil"))
	}
	if !filepath.IsAbs(rootDir) {
		errs = append(errs, fmt.Errorf("csi: the root directory %q is not an absolute path", rootDir))
	}
	if opts.CallTimeout < 0 {
		errs = append(errs, fmt.Errorf("csi: Options.CallTimeout is %v, which is negative", opts.CallTimeout))
	}
	if opts.CallTimeout == 0 {
		opts.CallTimeout = DefaultCallTimeout
	}
	p := &Plugin{cluster: cluster, rootDir: rootDir, timeout: opts.CallTimeout, node: lifecycle.NopNode{},
		inUse: map[v1.UniqueVolumeName]struct{}{}, attached: map[string]map[string]string{},
		staged: map[string]struct{}{}, waiting: map[string]map[types.UID]struct{}{},
		republished: map[types.UID]struct{}{}, usage: map[string]statsv1alpha1.FsStats{}}
	p.dial = func(ctx context.Context, endpoint string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", endpoint)
	}
	p.drivers = newDrivers(p)
	return p, errors.Join(errs...)
}

// Name implements [volume.PersistentPlugin] and [lifecycle.Component].
func (*Plugin) Name() string { return Name }

// Join implements [lifecycle.Joiner].
func (p *Plugin) Join(node lifecycle.Node) error {
	p.node = node
	return nil
}

// Run implements [lifecycle.Runner]. It reads which volumes are in use, and keeps what is published of the drivers up
// to date.
func (p *Plugin) Run(ctx context.Context) error {
	var joined sync.WaitGroup
	defer joined.Wait()
	joined.Go(func() { p.readInUse(ctx) })
	return p.drivers.run(ctx)
}

// Supports implements [volume.PersistentPlugin].
func (*Plugin) Supports(pv *v1.PersistentVolume) bool { return pv.Spec.CSI != nil }

// Inline implements [volume.PersistentPlugin]. The handle of the volume is kubelet's (makeVolumeHandle).
func (*Plugin) Inline(pod *v1.Pod, v *v1.Volume) *v1.PersistentVolume {
	src := v.CSI
	if src == nil {
		return nil
	}
	pv := &v1.PersistentVolume{}
	pv.Name = v.Name
	pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	pv.Spec.CSI = &v1.CSIPersistentVolumeSource{
		Driver: src.Driver, VolumeHandle: "csi-" + hash(string(pod.UID)+v.Name),
		ReadOnly: ptr.Deref(src.ReadOnly, false),
		FSType:   ptr.Deref(src.FSType, ""), VolumeAttributes: src.VolumeAttributes,
	}
	if ref := src.NodePublishSecretRef; ref != nil {
		pv.Spec.CSI.NodePublishSecretRef = &v1.SecretReference{Namespace: pod.Namespace, Name: ref.Name}
	}
	return pv
}

// Key implements [volume.PersistentPlugin].
func (*Plugin) Key(pv *v1.PersistentVolume) string {
	return keyOf(pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle)
}

// Attach implements [volume.PersistentPlugin]. The order and the texts are kubelet's.
func (p *Plugin) Attach(ctx context.Context, req volume.PersistentRequest) error {
	if req.Inline {
		return nil
	}
	src, key := req.Volume.Spec.CSI, p.Key(req.Volume)
	object, err := p.driverObject(ctx, src.Driver)
	if err != nil {
		return err
	}
	if object != nil && !ptr.Deref(object.Spec.AttachRequired, true) {
		return nil
	}
	p.use(csinode.UniqueName(src.Driver, src.VolumeHandle))
	waits := p.cluster.Attached(ctx, csinode.UniqueName(src.Driver, src.VolumeHandle), req.Pod)
	limited := object != nil && object.Spec.NodeAllocatableUpdatePeriodSeconds != nil
	if waits != nil && !limited {
		return waits
	}
	name := csinode.AttachmentName(src.VolumeHandle, src.Driver, p.node.NodeName())
	attachment, err := p.cluster.Attachment(ctx, name)
	if err == nil && limited && exhausted(attachment) {
		p.drivers.exceeded(src.Driver) // as in kubelet (VerifyExhaustedResource)
		return &runtime.TerminalError{Reason: "VolumeAttachmentLimitExceeded",
			Message: fmt.Sprintf("Node has reached its volume attachment limit, rejecting pod. volume %s: %s",
				req.Volume.Name, attachment.Status.AttachError.Message)}
	}
	if waits != nil {
		return waits
	}
	if err != nil {
		return fmt.Errorf("volume %s has GET error for volume attachment %s: %w", src.VolumeHandle, name, err)
	}
	switch status := &attachment.Status; {
	case attachment.DeletionTimestamp != nil:
		return errors.New("volume attachment is being deleted")
	case status.Attached:
		p.mu.Lock()
		p.attached[key] = status.AttachmentMetadata
		p.mu.Unlock()
		return nil
	case status.AttachError != nil:
		return errors.New(status.AttachError.Message)
	}
	return fmt.Errorf("volume %s is not attached for volume attachment %s", src.VolumeHandle, name)
}

// exhausted reports whether the controller could not attach a volume since the node has too many of them.
func exhausted(attachment *storagev1.VolumeAttachment) bool {
	failure := attachment.Status.AttachError
	return failure != nil && !attachment.Status.Attached && attachment.DeletionTimestamp == nil &&
		codes.Code(ptr.Deref(failure.ErrorCode, 0)) == codes.ResourceExhausted
}

// publishContext returns what the controller hands to the driver.
func (p *Plugin) publishContext(key string) map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.attached[key]
}

// driverObject returns the CSIDriver object, or nil if there is none.
func (p *Plugin) driverObject(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	object, err := p.cluster.Driver(ctx, name)
	switch {
	case err == nil:
		return object, nil
	case apierrors.IsNotFound(err):
		return nil, nil
	}
	return nil, fmt.Errorf("reading the CSIDriver %s: %w", name, err)
}

// SupportsSELinuxMount implements [volume.PersistentPlugin].
func (p *Plugin) SupportsSELinuxMount(ctx context.Context, req volume.PersistentRequest) (bool, error) {
	if req.Inline {
		return false, nil
	}
	object, err := p.driverObject(ctx, req.Volume.Spec.CSI.Driver)
	return object != nil && ptr.Deref(object.Spec.SELinuxMount, false), err
}

// Stage implements [volume.PersistentPlugin].
func (p *Plugin) Stage(ctx context.Context, req volume.PersistentRequest) error {
	if req.Inline {
		return nil
	}
	d, err := p.driverFor(req.Pod, req.Volume.Spec.CSI.Driver)
	if err != nil {
		if req.Block {
			return logged("blockMapper.SetUpDevice failed to get CSI client", err)
		}
		return logged("attacher.MountDevice failed to create newCsiDriverClient", err)
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	can, err := d.capabilities(ctx)
	if err != nil || !can.stage {
		return err
	}
	key := p.Key(req.Volume)
	p.mu.Lock()
	_, staged := p.staged[key]
	p.mu.Unlock()
	if staged { // for another pod
		return p.record(req)
	}
	secrets, err := p.secrets(ctx, req.Volume.Spec.CSI.NodeStageSecretRef, "NodeStageSecretRef")
	if err != nil {
		return err
	}
	before, err := p.recorded(req)
	if err != nil {
		return err
	}
	made, called := false, false
	if err = p.record(req); err == nil {
		made, err = p.makeStage(req)
	}
	if err == nil {
		err = p.step("stage")
	}
	if err == nil {
		called = true
		err = d.stage(ctx, can, req, p.stagePath(req), p.publishContext(key), secrets)
	}
	if err != nil {
		// If nothing is staged, the end of the pod needs no driver.
		if (!called || isFinal(err)) && (!made || p.removeStage(req)) && !before {
			p.removeRecord(req)
		}
		return err
	}
	p.mu.Lock()
	p.staged[key] = struct{}{}
	p.mu.Unlock()
	return nil
}

// Publish implements [volume.PersistentPlugin].
func (p *Plugin) Publish(ctx context.Context, req volume.PersistentRequest) (volume.Published, error) {
	var none volume.Published
	src := req.Volume.Spec.CSI
	object, err := p.driverObject(ctx, src.Driver)
	if err != nil {
		return none, err
	}
	if err := checkLifecycle(object, src.Driver, req.Inline); err != nil {
		return none, err
	}
	d, err := p.driverFor(req.Pod, src.Driver)
	if err != nil {
		if req.Block {
			return none, logged("blockMapper.MapPodDevice failed to get CSI client", err)
		}
		return none, logged("mounter.SetUpAt failed to get CSI client", err)
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	can, err := d.capabilities(ctx)
	if err != nil {
		return none, err
	}
	call := publication{attributes: src.VolumeAttributes, context: p.publishContext(p.Key(req.Volume)),
		readOnly: req.ReadOnly}
	if call.secrets, err = p.secrets(ctx, src.NodePublishSecretRef, "NodePublishSecretRef"); err != nil {
		return none, err
	}
	if err := p.addPod(ctx, &call, object, req); err != nil {
		return none, err
	}
	if can.stage && !req.Inline {
		call.staging = p.stagePath(req)
	}
	before, err := p.recorded(req)
	if err != nil {
		return none, err
	}
	called := false
	if err = p.record(req); err == nil {
		call.target, err = p.makeTarget(req)
	}
	if err == nil {
		err = p.step("publish")
	}
	if err == nil {
		called = true
		err = d.publish(ctx, can, req, call)
	}
	if err != nil {
		if !before && (!called || isFinal(err) && removeEmpty(call.target)) {
			p.removeRecord(req)
		}
		return none, err
	}
	out := volume.Published{
		Volume: runtime.Volume{HostPath: call.target, ReadOnly: call.readOnly,
			Relabel: !call.readOnly && !req.Block && req.SELinuxLabel == ""},
		FSGroup:   !can.mountGroup && !call.readOnly && ofGroup(object, req),
		Republish: object != nil && ptr.Deref(object.Spec.RequiresRepublish, false),
	}
	if out.Republish {
		p.republish(req.Pod.UID)
	}
	if req.Block {
		out.HostPath = req.Device
		if err = p.linkDevice(req, call.target); err == nil {
			err = loop.Hold(ctx, call.target, p.mapPath(req.Place))
		}
	}
	return out, err
}

// Unpublish implements [volume.PersistentPlugin].
func (p *Plugin) Unpublish(ctx context.Context, req volume.UnpublishRequest) error {
	p.forgetPod(req)
	r, err := p.read(req.Place)
	if err != nil || r.Driver == "" { // the driver was not called
		return err
	}
	d, err := p.drivers.get(r.Driver)
	if err != nil {
		return logged("Unmounter.TearDownAt failed to get CSI client", err)
	}
	if r.block {
		// First: the driver cannot detach a device that is open.
		if err := loop.Release(ctx, p.mapPath(req.Place)); err != nil {
			return err
		}
	}
	if err := p.step("unpublish"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	if err := d.unpublish(ctx, r.Handle, p.targetPath(req.Place, r.block)); err != nil {
		return logged("Unmounter.TearDownAt failed", err)
	}
	return p.removeTarget(req.Place, r.block)
}

// Unstage implements [volume.PersistentPlugin].
func (p *Plugin) Unstage(ctx context.Context, req volume.UnpublishRequest) error {
	r, err := p.read(req.Place)
	if err == nil && r.Driver == "" {
		r, err = p.readShared(req.Place, req.Key)
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	delete(p.staged, req.Key) // first: the driver may do its work and not answer
	p.mu.Unlock()
	if r.Driver == "" { // it was not staged, but it may be declared to be in use
		r.Driver, r.Handle, _ = strings.Cut(req.Key, csinode.Separator)
	} else if r.Mode != string(storagev1.VolumeLifecycleEphemeral) {
		ctx, cancel := context.WithTimeout(ctx, p.timeout)
		defer cancel()
		if err := p.unstage(ctx, r, filepath.Base(req.Dir)); err != nil {
			return err
		}
	}
	// Before the volume is not in use any more: what Run finds on disk is.
	for _, dir := range []string{req.Dir, req.StateDir} {
		if err := p.step("remove a record of the pod"); err != nil {
			return err
		}
		if err := gone(os.Remove(filepath.Join(dir, dataFile))); err != nil {
			return err
		}
	}
	p.mu.Lock()
	delete(p.usage, req.Key)
	delete(p.attached, req.Key)
	p.mu.Unlock()
	p.cluster.Forget(csinode.AttachmentName(r.Handle, r.Driver, p.node.NodeName()))
	p.unuse(csinode.UniqueName(r.Driver, r.Handle))
	return nil
}

// MeasuredName implements [volume.PersistentPlugin]. The name has that of the driver, as in kubelet
// (GetFullQualifiedPluginNameForVolume).
func (*Plugin) MeasuredName(key string) string {
	driver, _, _ := strings.Cut(key, csinode.Separator)
	return Name + ":" + driver
}

// logged returns an error with kubelet's text for the step that has failed.
func logged(step string, err error) error { return fmt.Errorf("%s: %s: %w", Name, step, err) }

// forgetPod drops what is kept in memory for a pod that ends.
func (p *Plugin) forgetPod(req volume.UnpublishRequest) {
	driver, _, _ := strings.Cut(req.Key, csinode.Separator)
	uid := req.PodUID()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.republished, uid)
	delete(p.waiting[driver], uid)
	if len(p.waiting[driver]) == 0 {
		delete(p.waiting, driver)
	}
}

func (p *Plugin) step(name string) error {
	if p.before == nil {
		return nil
	}
	return p.before(name)
}

// driverFor returns a registered driver. If there is none, the pod is synced when there is.
func (p *Plugin) driverFor(pod *v1.Pod, name string) (*driver, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d, err := p.drivers.get(name)
	if err == nil {
		delete(p.waiting[name], pod.UID)
		return d, nil
	}
	if p.waiting[name] == nil {
		p.waiting[name] = map[types.UID]struct{}{}
	}
	p.waiting[name][pod.UID] = struct{}{}
	return nil, err
}

// registered has the pods synced that wait for the driver.
func (p *Plugin) registered(name string) {
	p.mu.Lock()
	pods := p.waiting[name]
	delete(p.waiting, name)
	p.mu.Unlock()
	for uid := range pods {
		p.node.Sync(uid)
	}
}

// republish has the volumes of the pod published again and again.
func (p *Plugin) republish(uid types.UID) {
	p.mu.Lock()
	p.republished[uid] = struct{}{}
	p.mu.Unlock()
	p.drivers.wake.Notify()
}

// republishes reports whether volumes are published again and again.
func (p *Plugin) republishes() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.republished) > 0
}

// republishAll has the pods synced whose volumes are published again.
func (p *Plugin) republishAll() {
	p.mu.Lock()
	pods := slices.Collect(maps.Keys(p.republished))
	p.mu.Unlock()
	for _, uid := range pods {
		p.node.Sync(uid)
	}
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
