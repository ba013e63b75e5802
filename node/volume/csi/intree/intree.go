// Package intree has the volumes of the types that Kubernetes once had drivers for, and that CSI drivers have now:
// awsElasticBlockStore, azureDisk, azureFile, cinder, gcePersistentDisk, portworxVolume and vsphereVolume. As in
// kubelet, they are translated to volumes of the CSI drivers, by the library of Kubernetes for that. Nothing else is
// needed on the node, but the driver.
//
// [Claims] translates persistent volumes, and [Wrap] volumes in the specs of pods:
//
//	drivers, err := csi.New(storage, rootDir, csi.Options{})
//	opts.Volumes.Persistent = append(opts.Volumes.Persistent, intree.Wrap(drivers))
//	opts.API.Claims = intree.Claims(opts.API.Claims)
//
// The node must also say so in its CSINode object, so that the controllers of the cluster attach the translated
// volumes, as package cluster/storage does. The library is 0.15 MB of a program.
package intree

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	csitranslation "k8s.io/csi-translation-lib"

	"github.com/kubeletkit/kubeletkit/node/volume"
)

// migratedTo is the annotation of a translated volume in the spec of a pod, with the name of the driver (that of the
// controllers for persistent volumes).
const migratedTo = "pv.kubernetes.io/migrated-to"

// Claims returns a source with the claims of another one, whose persistent volumes are translated. nil stays nil.
func Claims(source volume.ClaimSource) volume.ClaimSource {
	if source == nil {
		return nil
	}
	return claims{source}
}

type claims struct{ volume.ClaimSource }

// PersistentVolume implements [volume.ClaimSource].
func (c claims) PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error) {
	pv, err := c.ClaimSource.PersistentVolume(ctx, name)
	if err != nil || pv == nil {
		return pv, err
	}
	translator := csitranslation.New()
	if !translator.IsPVMigratable(pv) {
		return pv, nil
	}
	translated, err := translator.TranslateInTreePVToCSI(logr.Discard(), pv)
	if err != nil {
		return nil, fmt.Errorf("failed to translate in-tree pv to CSI: %w", err)
	}
	return translated, nil
}

// Wrap returns a plugin of CSI volumes that also supports the volumes in the specs of pods that are translated. The
// plugin sets them up as persistent volumes.
func Wrap(p volume.PersistentPlugin) volume.PersistentPlugin { return plugin{p} }

type plugin struct{ volume.PersistentPlugin }

// Unwrap returns the plugin, for what it can beside the interface, such as VolumesInUse, see [runtime.Optional].
func (p plugin) Unwrap() any { return p.PersistentPlugin }

// Inline implements [volume.PersistentPlugin].
func (p plugin) Inline(pod *v1.Pod, v *v1.Volume) *v1.PersistentVolume {
	translator := csitranslation.New()
	if !translator.IsInlineMigratable(v) {
		return p.PersistentPlugin.Inline(pod, v)
	}
	pv, err := translator.TranslateInTreeInlineVolumeToCSI(logr.Discard(), v.DeepCopy(), pod.Namespace)
	if err != nil || pv.Spec.CSI == nil {
		return nil
	}
	pv.Name = v.Name // as the place of the volume has it
	pv.Annotations = map[string]string{migratedTo: pv.Spec.CSI.Driver}
	return pv
}

// migrated returns the request of a translated volume as that of a persistent volume.
func migrated(req volume.PersistentRequest) volume.PersistentRequest {
	if req.Inline && req.Volume.Annotations[migratedTo] != "" {
		req.Inline, req.ReadOnly = false, req.ReadOnly || req.Volume.Spec.CSI.ReadOnly
	}
	return req
}

// Attach implements [volume.PersistentPlugin].
func (p plugin) Attach(ctx context.Context, req volume.PersistentRequest) error {
	return p.PersistentPlugin.Attach(ctx, migrated(req))
}

// SupportsSELinuxMount implements [volume.PersistentPlugin].
func (p plugin) SupportsSELinuxMount(ctx context.Context, req volume.PersistentRequest) (bool, error) {
	return p.PersistentPlugin.SupportsSELinuxMount(ctx, migrated(req))
}

// Stage implements [volume.PersistentPlugin].
func (p plugin) Stage(ctx context.Context, req volume.PersistentRequest) error {
	return p.PersistentPlugin.Stage(ctx, migrated(req))
}

// Publish implements [volume.PersistentPlugin].
func (p plugin) Publish(ctx context.Context, req volume.PersistentRequest) (volume.Published, error) {
	return p.PersistentPlugin.Publish(ctx, migrated(req))
}

// Expand implements [volume.PersistentPlugin].
func (p plugin) Expand(ctx context.Context, req volume.PersistentRequest) error {
	return p.PersistentPlugin.Expand(ctx, migrated(req))
}
