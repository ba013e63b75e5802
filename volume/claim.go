package volume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// ClaimSource finds claims and the persistent volumes behind them. It is safe for concurrent
// use. What it returns is shared and must not be changed.
type ClaimSource interface {
	Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error)
	PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error)
}

// Claim is the [Plugin] for persistent volumes of the types hostPath and local, through claims
// and ephemeral claims. A local volume must be a directory. Which volume is behind a claim is
// looked up once for each pod, and then remembered, as it does not change.
type Claim struct{ Sources }

var _ Plugin = Claim{}

// Name returns the plugin's name.
func (Claim) Name() string { return "kubernetes.io/persistent-claim" }

// Supports reports whether the volume is a claim.
func (Claim) Supports(v *v1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil }

// boundVolume is what is remembered of a claim.
type boundVolume struct {
	Path     string          `json:"path"`
	Type     v1.HostPathType `json:"type,omitempty"`
	ReadOnly bool            `json:"readOnly,omitempty"`
	// Host means that the volume is one of the type hostPath.
	Host bool `json:"host,omitempty"`
	// Local means that the volume is one of the type local.
	Local bool `json:"local,omitempty"`
	// name is that of the persistent volume. It is not remembered.
	name string
}

// readBound returns what is remembered. A file that cannot be used is written again.
func readBound(file string) (b boundVolume, found bool) {
	data, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(data, &b) != nil || b.Path == "" {
		return boundVolume{}, false
	}
	return b, true
}

// write writes the file in one step.
func (b boundVolume) write(file string) error {
	data, err := json.Marshal(b)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// SetUp finds the volume, checks that it is there, and gives a local volume to the fsGroup of
// the pod. A volume of the host that was there once for the pod is an [OutdatedError] when it is
// not, see [HostPath]. A local volume must stay there: a runtime may make an empty directory where
// its disk was mounted.
func (p Claim) SetUp(ctx context.Context, req SetUpRequest) (runtime.Volume, error) {
	file := filepath.Join(req.StateDir, "volume")
	bound, found := readBound(file)
	if !found {
		var err error
		if bound, err = p.find(ctx, req.Pod, req.Volume); err != nil {
			return runtime.Volume{}, err
		}
	}
	ready := runtime.Volume{HostPath: bound.Path, ReadOnly: bound.ReadOnly, Relabel: bound.Local && !bound.ReadOnly}
	if err := checkHostPath(bound.Path, bound.Type); err != nil {
		err = fmt.Errorf("persistent volume at %s: %w", bound.Path, err)
		if found && bound.Host {
			return ready, &OutdatedError{err}
		}
		return runtime.Volume{}, err
	}
	if !found {
		unlock, err := p.paths.lock(ctx, bound.Path)
		if err != nil {
			return runtime.Volume{}, err
		}
		defer unlock()
		if err := p.give(ctx, req, bound); err != nil {
			return runtime.Volume{}, fmt.Errorf("persistent volume at %s: giving it to the fsGroup: %w", bound.Path, err)
		}
		if err := bound.write(file); err != nil {
			return runtime.Volume{}, err
		}
	}
	return ready, nil
}

// TearDown does nothing: the manager removes what was remembered, and the volume stays.
func (Claim) TearDown(context.Context, TearDownRequest) error { return nil }

// find returns the volume behind a claim. The texts of the errors are kubelet's.
func (p Claim) find(ctx context.Context, pod *v1.Pod, v *v1.Volume) (boundVolume, error) {
	var bound boundVolume
	if p.Claims == nil {
		return bound, fmt.Errorf("%w: %s; this agent has no source of claims", ErrUnsupported, typeOf(v))
	}
	name := pod.Name + "-" + v.Name // of an ephemeral claim (API reference, EphemeralVolumeSource)
	if v.PersistentVolumeClaim != nil {
		name, bound.ReadOnly = v.PersistentVolumeClaim.ClaimName, v.PersistentVolumeClaim.ReadOnly
	}
	fail := func(err error) (boundVolume, error) {
		return bound, fmt.Errorf("error processing PVC %s/%s: %w", pod.Namespace, name, err)
	}
	claim, err := p.Claims.Claim(ctx, pod.Namespace, name)
	if err != nil {
		return fail(fmt.Errorf("failed to fetch PVC from API server: %w", err))
	}
	if err := checkClaim(claim); err != nil {
		return fail(err)
	}
	if v.Ephemeral != nil && !metav1.IsControlledBy(claim, pod) {
		return bound, fmt.Errorf("PVC %s/%s was not created for pod %s/%s (pod is not owner)", claim.Namespace, claim.Name, pod.Namespace, pod.Name)
	}
	pv, err := p.Claims.PersistentVolume(ctx, claim.Spec.VolumeName)
	if err != nil {
		return fail(fmt.Errorf("failed to fetch PV %s from API server: %w", claim.Spec.VolumeName, err))
	}
	if err := bound.take(pv, claim); err != nil {
		return fail(err)
	}
	return bound, p.checkAffinity(pv)
}

// affinityError is the refusal of a persistent volume that is not one of the node.
type affinityError struct {
	pv  string
	err error
}

// Error returns kubelet's text.
func (e *affinityError) Error() string {
	return fmt.Sprintf("MountVolume.NodeAffinity check failed for volume %q : %v", e.pv, e.err)
}

func (e *affinityError) Unwrap() error { return e.err }

// checkAffinity checks that the node affinity of the volume matches the labels of the node
// (CheckNodeAffinity of component-helpers/storage/volume, which depends on client-go).
func (p Claim) checkAffinity(pv *v1.PersistentVolume) error {
	if p.NodeLabels == nil || pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return nil
	}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: p.NodeLabels()}}
	matches, err := nodeaffinity.NewLazyErrorNodeSelector(pv.Spec.NodeAffinity.Required).Match(node)
	if err == nil && !matches {
		err = errors.New("no matching NodeSelectorTerms")
	}
	if err != nil {
		return &affinityError{pv.Name, err}
	}
	return nil
}

// protection keeps a claim while pods use it.
const protection = "kubernetes.io/pvc-protection"

func checkClaim(c *v1.PersistentVolumeClaim) error {
	switch {
	case c.DeletionTimestamp != nil && !slices.Contains(c.Finalizers, protection):
		return errors.New("PVC is being deleted")
	case c.Status.Phase != v1.ClaimBound:
		return errors.New("PVC is not bound")
	case c.Spec.VolumeName == "":
		return errors.New("PVC has empty pvc.Spec.VolumeName")
	}
	return nil
}

// take reads the place of a persistent volume.
func (b *boundVolume) take(pv *v1.PersistentVolume, c *v1.PersistentVolumeClaim) error {
	ref := pv.Spec.ClaimRef
	b.name = pv.Name
	switch {
	case ref == nil:
		return fmt.Errorf("found PV object %s but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim", pv.Name)
	case ref.UID != c.UID:
		return fmt.Errorf("found PV object %s but its pv.Spec.ClaimRef.UID %s does not point to claim.UID %s", pv.Name, ref.UID, c.UID)
	case pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode != v1.PersistentVolumeFilesystem:
		return fmt.Errorf("%w: persistent volume of mode %s", ErrUnsupported, *pv.Spec.VolumeMode)
	case pv.Spec.HostPath != nil:
		b.Path, b.Host = pv.Spec.HostPath.Path, true
		if pv.Spec.HostPath.Type != nil {
			b.Type = *pv.Spec.HostPath.Type
		}
	case pv.Spec.Local != nil:
		b.Path, b.Type, b.Local = pv.Spec.Local.Path, v1.HostPathDirectory, true
	default:
		return fmt.Errorf("%w: persistent volume of type %s", ErrUnsupported, typeOfPersistent(pv))
	}
	if !filepath.IsAbs(b.Path) || slices.Contains(strings.Split(b.Path, "/"), "..") {
		return fmt.Errorf("path %q of PV %s: must be an absolute path without '..'", b.Path, pv.Name)
	}
	return nil
}

func typeOfPersistent(pv *v1.PersistentVolume) string {
	src := reflect.ValueOf(pv.Spec.PersistentVolumeSource)
	for i := range src.NumField() {
		if !src.Field(i).IsNil() {
			name, _, _ := strings.Cut(src.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return "none"
}
