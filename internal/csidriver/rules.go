package csidriver

import (
	"fmt"
	"maps"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Violations returns what a CO has done that it must not do, with what it has done to drivers in the same directory
// before.
func (d *Driver) Violations() []string { return d.volumes.violations() }

// ViolationsIn returns those of the drivers in a directory, of which none runs.
func ViolationsIn(dir string) ([]string, error) {
	s := store{path: statePath(dir)}
	err := s.read()
	return s.violations(), err
}

// violation adds one.
func (d *Driver) violation(method, id, format string, args ...any) string {
	text := fmt.Sprintf("%s: volume %s: ", method, id) + fmt.Sprintf(format, args...)
	d.volumes.violate(text)
	return text
}

// refuse is a violation, and its error.
func (d *Driver) refuse(method, id, format string, args ...any) error {
	return status.Error(codes.FailedPrecondition, d.violation(method, id, format, args...))
}

// need returns an error unless the Node service has the capability.
func (d *Driver) need(method, id string, c csi.NodeServiceCapability_RPC_Type) error {
	if d.Settings().node(c) {
		return nil
	}
	return status.Error(codes.Unimplemented, d.violation(method, id, "the node has no capability %v", c))
}

// required returns an error if a value is missing. The arguments are names and values in turn.
func required(namesAndValues ...string) error {
	for pair := range slices.Chunk(namesAndValues, 2) {
		if pair[1] == "" {
			return status.Errorf(codes.InvalidArgument, "the %s is missing", pair[0])
		}
	}
	return nil
}

func notFound(id string) error { return status.Errorf(codes.NotFound, "there is no volume %s", id) }

// lock returns a volume for a call that changes it. There is one such call at a time.
func (d *Driver) lock(id string) (v volume, unlock func(), err error) {
	d.mu.Lock()
	busy := d.busy[id]
	d.busy[id] = true
	d.mu.Unlock()
	if busy {
		return v, nil, status.Errorf(codes.Aborted, "there is another call for volume %s", id)
	}
	unlock = func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.busy, id)
	}
	v, ok := d.volumes.get(id)
	if !ok {
		unlock()
		return v, nil, notFound(id)
	}
	return v, unlock, nil
}

// access returns the capability of a volume in a request to the node.
func (d *Driver) access(method, id string, c *csi.VolumeCapability) (access, error) {
	if c == nil {
		return access{}, status.Error(codes.InvalidArgument, "the volume capability is missing")
	}
	settings := d.Settings()
	if c.AccessType == nil || c.GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_UNKNOWN {
		return access{}, status.Error(codes.InvalidArgument, d.violation(method, id, "the capability is incomplete"))
	}
	a := accessOf(c)
	switch a.Mode {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		if !settings.node(csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER) {
			return a, status.Error(codes.InvalidArgument, d.violation(method, id, "the node has no capability for %v",
				a.Mode))
		}
	}
	if a.Group != "" && !settings.node(csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP) {
		return a, status.Error(codes.InvalidArgument, d.violation(method, id, "the node has no capability for a group"))
	}
	if fs := d.opts.FileSystem; fs != "" && a.FileSystem != "" && a.FileSystem != fs {
		return a, status.Errorf(codes.InvalidArgument, "the file system %s is not supported: %s", a.FileSystem, fs)
	}
	return a, nil
}

// attachedKey is the key of the context that a volume has after it was attached. Its value is the ID of the node.
const attachedKey = "attached-to"

// checkUse checks what a CO tells the node of a volume.
func (d *Driver) checkUse(method string, v volume, publishContext, volumeContext map[string]string) error {
	if v.Ephemeral {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(v.Context)) {
		if volumeContext[key] != v.Context[key] {
			return d.refuse(method, v.ID, "the volume context has %s=%q, not %q", key, volumeContext[key], v.Context[key])
		}
	}
	settings := d.Settings()
	if !settings.controller(csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME) {
		return nil
	}
	if _, ok := v.Attached[settings.NodeID]; !ok {
		return d.refuse(method, v.ID, "it is not attached to node %s", settings.NodeID)
	}
	if to := publishContext[attachedKey]; to != settings.NodeID {
		return d.refuse(method, v.ID, "the publish context has %s=%q, not %q", attachedKey, to, settings.NodeID)
	}
	return nil
}

// checkStaged checks that a volume is staged where the CO says so, if volumes are to be staged.
func (d *Driver) checkStaged(method string, v volume, a access, staging string) error {
	if v.Ephemeral || !d.Settings().node(csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME) {
		return nil
	}
	switch {
	case v.Staged == nil || !v.Staged.Answered:
		return d.refuse(method, v.ID, "it is not staged")
	case v.Staged.Path != staging:
		return d.refuse(method, v.ID, "it is staged at %s, not at %q", v.Staged.Path, staging)
	case v.Staged.Access.Block != a.Block:
		return d.refuse(method, v.ID, "it is staged with another access type")
	case v.Staged.Access.Context != a.Context:
		return d.refuse(method, v.ID, "it is staged with the SELinux label %q, not with %q", v.Staged.Access.Context,
			a.Context)
	case !a.Block && !d.placed(d.base(v.ID), staging), a.Block && d.devices() && !onDevice(d.image(v.ID)):
		return d.refuse(method, v.ID, "it is not staged any more, since the node was restarted")
	}
	return nil
}

// checkOthers compares a publication with those that there are.
func (d *Driver) checkOthers(method string, v volume, target string, p publication) error {
	if before, ok := v.Targets[target]; ok {
		if before != p {
			return status.Errorf(codes.AlreadyExists, "volume %s is published at %s with %+v", v.ID, target, before)
		}
		return nil
	}
	// Kubernetes publishes a volume with SINGLE_NODE_WRITER for several pods.
	single := p.Access.Mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	for _, other := range v.Targets {
		single = single || other.Access.Mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	}
	if single && len(v.Targets) > 0 {
		return d.refuse(method, v.ID, "it has one writer, and is published at %v", paths(v))
	}
	if v.Ephemeral && len(v.Targets) > 0 {
		return d.refuse(method, v.ID, "it is ephemeral, and is published at %v", paths(v))
	}
	return nil
}

func paths(v volume) []string { return slices.Sorted(maps.Keys(v.Targets)) }

// readOnly reports whether nobody writes with the mode.
func readOnly(mode csi.VolumeCapability_AccessMode_Mode) bool {
	return mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY ||
		mode == csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
}
