package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/kubeletkit/kubeletkit/internal/mounting"
	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/node/volume/csi/csinode"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// All paths and files are kubelet's, so that either finds the volumes of the other:
//
//	plugins/kubernetes.io/csi/<driver>/<sha256 of the handle>/vol_data.json  what is staged
//	plugins/kubernetes.io/csi/<driver>/<sha256 of the handle>/globalmount    where
//	pods/<uid>/volumes/kubernetes.io~csi/<volume>/vol_data.json              what is published
//	pods/<uid>/volumes/kubernetes.io~csi/<volume>/mount                      where
//
// and those of block volumes:
//
//	plugins/kubernetes.io/csi/volumeDevices/<volume>/data/vol_data.json      what is staged and published
//	plugins/kubernetes.io/csi/volumeDevices/staging/<volume>                 where it is staged
//	plugins/kubernetes.io/csi/volumeDevices/publish/<volume>/<uid>           where it is published
//	plugins/kubernetes.io/csi/volumeDevices/<volume>/dev/<uid>               the device again, with a loop device
//	pods/<uid>/volumeDevices/kubernetes.io~csi/<volume>                      a link to the device
//
// One file is only this agent's. It has what is staged for the pod and published, so that the files above, which pods
// share or which a kubelet was writing when the power went, are not needed to take the volume down:
//
//	pods/<uid>/plugins/kubernetes.io~csi/<volume>/vol_data.json
const (
	dataFile   = "vol_data.json"
	mountDir   = "mount"
	globalDir  = "globalmount"
	devicesDir = "volumeDevices"
	dataDir    = "data"
	stagingDir = "staging"
	publishDir = "publish"
	mapDir     = "dev"
)

// record is the content of a file vol_data.json, in the order in which kubelet has it.
type record struct {
	Attachment string `json:"attachmentID,omitempty"`
	Driver     string `json:"driverName"`
	Node       string `json:"nodeName,omitempty"`
	Label      string `json:"seLinuxMountContext,omitempty"`
	Name       string `json:"specVolID,omitempty"`
	Handle     string `json:"volumeHandle"`
	Mode       string `json:"volumeLifecycleMode,omitempty"`
	// block is whether the file is that of a block volume.
	block bool
}

// key is that of the volume.
func (r record) key() string { return keyOf(r.Driver, r.Handle) }

func keyOf(driver, handle string) string { return driver + csinode.Separator + handle }

// ownRecord is the content of the file that is only this agent's.
type ownRecord struct {
	record
	Block bool `json:"block,omitempty"`
}

// maxRecord is the limit for a file vol_data.json, in bytes. Handles have no limit in the API but that of the object.
const maxRecord = 1 << 20

// readRecord reads a file vol_data.json. A file that is missing, and one that cannot be used, such as one that kubelet
// was writing when the power went, is an empty record.
func readRecord(file string) (r record, err error) {
	var own ownRecord
	data, err := safefile.ReadFile(file, maxRecord)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return record{}, nil
	}
	if err != nil {
		return record{}, err
	}
	if json.Unmarshal(data, &own) != nil || own.Driver == "" || own.Handle == "" {
		return record{}, nil
	}
	own.block = own.Block
	return own.record, nil
}

// read returns the record of a volume of a pod.
func (p *Plugin) read(place volume.Place) (record, error) {
	for _, dir := range []string{place.StateDir, place.Dir} {
		if r, err := readRecord(filepath.Join(dir, dataFile)); err != nil || r.Driver != "" {
			return r, err
		}
	}
	// All pods have one record of a block volume. It is one of this pod if a kubelet has made something for the pod.
	for _, path := range []string{place.Device, p.targetPath(place, true), p.mapPath(place)} {
		_, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return record{}, err
		}
		r, err := readRecord(filepath.Join(p.blockDir(place), dataDir, dataFile))
		r.block = r.Driver != ""
		return r, err
	}
	return record{}, nil
}

// readShared returns the record of a block volume that all pods have, if it is of the volume with the key.
func (p *Plugin) readShared(place volume.Place, key string) (record, error) {
	r, err := readRecord(filepath.Join(p.blockDir(place), dataDir, dataFile))
	if err != nil || r.key() != key {
		return record{}, err
	}
	r.block = true
	return r, nil
}

// Find implements [volume.PersistentPlugin].
func (p *Plugin) Find(place volume.Place) (string, error) {
	r, err := p.read(place)
	if err != nil || r.Driver == "" {
		return "", err
	}
	return r.key(), nil
}

// SELinuxMountLabel implements [volume.PersistentPlugin].
func (p *Plugin) SELinuxMountLabel(place volume.Place) (label string, found bool, err error) {
	r, err := p.read(place)
	return r.Label, r.Driver != "", err
}

// Published implements [volume.PersistentPlugin].
func (p *Plugin) Published(place volume.Place) (*volume.Published, error) {
	r, err := p.read(place)
	if err != nil || r.Driver == "" {
		return nil, err
	}
	if r.block {
		// After a reboot, the target may be the empty file over which the driver had mounted the device.
		info, err := os.Stat(place.Device)
		if err != nil || !mounting.IsBlockDevice(info.Mode()) {
			return nil, gone(err)
		}
		return &volume.Published{Volume: runtime.Volume{HostPath: place.Device}}, nil
	}
	target := p.targetPath(place, false)
	mounted, err := volume.Place{Dir: target}.Mounted()
	if err != nil || !mounted {
		return nil, err
	}
	return &volume.Published{Volume: runtime.Volume{HostPath: target, Relabel: r.Label == ""}}, nil
}

func (p *Plugin) dir(elem ...string) string {
	return filepath.Join(append([]string{p.rootDir, "plugins", Name}, elem...)...)
}

// blockDir is the directory of a block volume.
func (p *Plugin) blockDir(place volume.Place) string {
	return p.dir(devicesDir, filepath.Base(place.Dir))
}

// mapPath is where the device of a block volume is mounted for the pod so that it is held open.
func (p *Plugin) mapPath(place volume.Place) string {
	return filepath.Join(p.blockDir(place), mapDir, string(place.PodUID()))
}

func (p *Plugin) recordPath(req volume.PersistentRequest) string {
	if req.Block {
		return filepath.Join(p.blockDir(req.Place), dataDir, dataFile)
	}
	return filepath.Join(req.Dir, dataFile)
}

// recorded reports whether there is a record of the volume for the pod.
func (p *Plugin) recorded(req volume.PersistentRequest) (bool, error) {
	r, err := p.read(req.Place)
	return r.Driver != "", err
}

// record writes the records of the volume, unless they are there.
func (p *Plugin) record(req volume.PersistentRequest) error {
	src, path := req.Volume.Spec.CSI, p.recordPath(req)
	r := record{Name: req.Volume.Name, Handle: src.VolumeHandle, Driver: src.Driver, Node: p.node.NodeName(),
		Label: req.SELinuxLabel, Attachment: csinode.AttachmentName(src.VolumeHandle, src.Driver, p.node.NodeName())}
	if !req.Block {
		r.Mode = string(lifecycleOf(req.Inline))
	}
	own := r
	own.block = req.Block
	for _, file := range []struct {
		path    string
		record  record
		content any
	}{
		// First: it shows that there is another one.
		{filepath.Join(req.StateDir, dataFile), own, ownRecord{own, own.block}},
		{path, r, r},
	} {
		switch there, err := readRecord(file.path); {
		case err != nil:
			return err
		case there.Driver != "" && (there.Driver != r.Driver || there.Handle != r.Handle):
			return fmt.Errorf("%s is of the volume %s of driver %s: take that volume down first", file.path, there.Handle,
				there.Driver)
		case there == file.record:
			continue
		}
		if err := p.step("write a record of the pod"); err != nil {
			return err
		}
		if err := writeRecord(file.path, file.content); err != nil {
			return err
		}
	}
	return nil
}

func writeRecord(path string, content any) error {
	data, err := json.Marshal(content)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return safefile.Write(path, append(data, '\n'))
}

// removeRecord removes the record of a volume that the driver has not touched, with the directories that are empty
// then. What cannot be removed is removed at the end of the pod.
func (p *Plugin) removeRecord(req volume.PersistentRequest) {
	if p.step("remove the record of what was refused") != nil {
		return
	}
	if !req.Block {
		_ = os.Remove(filepath.Join(req.Dir, dataFile))
		_ = os.Remove(req.Dir)
	} else if !p.shared(req) {
		_ = os.Remove(p.dir(devicesDir, publishDir, req.Volume.Name))
		p.removeBlockDir(req.Volume.Name)
	}
	_ = os.Remove(filepath.Join(req.StateDir, dataFile))
}

// shared reports whether a block volume may be staged, or published for a pod.
func (p *Plugin) shared(req volume.PersistentRequest) bool {
	for _, path := range []string{p.stagePath(req), p.dir(devicesDir, publishDir, req.Volume.Name)} {
		entries, err := os.ReadDir(path)
		if err == nil && path == p.stagePath(req) || len(entries) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

// removeBlockDir removes the directory of a block volume that is neither staged nor published.
func (p *Plugin) removeBlockDir(name string) {
	dir := p.dir(devicesDir, name)
	_ = os.Remove(filepath.Join(dir, mapDir))
	_ = os.Remove(filepath.Join(dir, dataDir, dataFile))
	_ = os.Remove(filepath.Join(dir, dataDir))
	_ = os.Remove(dir)
}

// stagePath is where a volume is staged.
func (p *Plugin) stagePath(req volume.PersistentRequest) string {
	if req.Block {
		return p.dir(devicesDir, stagingDir, req.Volume.Name)
	}
	return p.globalPath(req.Volume.Spec.CSI.Driver, req.Volume.Spec.CSI.VolumeHandle)
}

func (p *Plugin) globalPath(driver, handle string) string {
	return p.dir(driver, hash(handle), globalDir)
}

// makeStage makes the directory in which a volume is staged. made means that it was not there.
func (p *Plugin) makeStage(req volume.PersistentRequest) (made bool, err error) {
	path := p.stagePath(req)
	if err := p.step("make the stage"); err != nil {
		return false, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return false, err
	}
	err = os.Mkdir(path, 0o750)
	made = err == nil
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	if req.Block {
		return made, nil
	}
	src := req.Volume.Spec.CSI
	if err := p.step("write the record of the stage"); err != nil {
		return made, err
	}
	return made, writeRecord(filepath.Join(filepath.Dir(path), dataFile),
		record{Handle: src.VolumeHandle, Driver: src.Driver, Label: req.SELinuxLabel})
}

// removeStage removes a directory in which nothing was staged. It returns false if something is there all the same.
func (p *Plugin) removeStage(req volume.PersistentRequest) bool {
	if p.step("remove the stage of what was refused") != nil {
		return false
	}
	path := p.stagePath(req)
	if !removeEmpty(path) {
		return false
	}
	if !req.Block {
		_ = os.Remove(filepath.Join(filepath.Dir(path), dataFile))
		_ = os.Remove(filepath.Dir(path))
	}
	return true
}

// removeEmpty removes an empty directory. It returns false if there is anything else at the path, such as a mount.
func removeEmpty(path string) bool {
	info, err := os.Lstat(path)
	if err == nil && info.IsDir() {
		err = os.Remove(path)
	} else if err == nil {
		return false
	}
	return gone(err) == nil
}

// targetPath is where a volume is published for a pod.
func (p *Plugin) targetPath(place volume.Place, block bool) string {
	if block {
		return p.dir(devicesDir, publishDir, filepath.Base(place.Dir), string(place.PodUID()))
	}
	return filepath.Join(place.Dir, mountDir)
}

// makeTarget makes the directory above the path at which a volume is published. The path itself is the driver's.
func (p *Plugin) makeTarget(req volume.PersistentRequest) (string, error) {
	target := p.targetPath(req.Place, req.Block)
	return target, os.MkdirAll(filepath.Dir(target), 0o750)
}

// linkDevice makes the link to the published device.
func (p *Plugin) linkDevice(req volume.PersistentRequest, target string) error {
	if at, err := os.Readlink(req.Device); err == nil && at == target {
		return nil
	}
	if err := p.step("link the device"); err != nil {
		return err
	}
	return req.LinkDevice(target)
}

// removeTarget removes what the driver has left of a publication: the driver removes the path itself, but some do not.
func (p *Plugin) removeTarget(place volume.Place, block bool) error {
	if err := p.step("remove the target"); err != nil {
		return err
	}
	target := p.targetPath(place, block)
	if gone(os.Remove(target)) != nil { // a mount point cannot be removed
		if err := (volume.Place{Dir: target}).Unmount(); err != nil {
			return err
		}
		if err := gone(os.Remove(target)); err != nil {
			return fmt.Errorf("the driver has left something at the path of the volume: %w", err)
		}
	}
	return nil // the link to a device stays until the volume is unstaged: it may be all that shows that the pod had it
}

// unstage unstages a volume that no pod uses, and removes its files. The record of the stage, and not its directory,
// shows that the driver is to be called: a driver may have removed the directory in a call that has failed after that,
// and a directory at which a dead file system is mounted must not be looked at.
func (p *Plugin) unstage(ctx context.Context, r record, name string) error {
	path := p.globalPath(r.Driver, r.Handle)
	recordOf := filepath.Join(filepath.Dir(path), dataFile)
	if r.block {
		path = p.dir(devicesDir, stagingDir, name)
		recordOf = filepath.Join(p.dir(devicesDir, name), dataDir, dataFile)
	}
	switch _, err := os.Lstat(recordOf); {
	case err == nil:
		if err := p.unstageAt(ctx, r, path); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := p.removeStaged(path, r.block); err != nil {
		return err
	}
	if err := p.step("remove the record of the stage"); err != nil {
		return err
	}
	if !r.block {
		_ = os.Remove(recordOf)
		return gone(os.Remove(filepath.Dir(path)))
	}
	_ = os.Remove(p.dir(devicesDir, publishDir, name))
	p.removeBlockDir(name)
	return nil
}

func (p *Plugin) unstageAt(ctx context.Context, r record, path string) error {
	d, err := p.drivers.get(r.Driver)
	if err != nil {
		return logged("attacher.UnmountDevice failed to create newCsiDriverClient", err)
	}
	can, err := d.capabilities(ctx)
	if err != nil || !can.stage {
		return err
	}
	if err := p.step("unstage"); err != nil {
		return err
	}
	if err := d.unstage(ctx, r.Handle, path); err != nil {
		return logged("attacher.UnmountDevice failed", err)
	}
	return nil
}

// removeStaged unmounts and removes what a driver has left of a stage. That of a block volume may have files.
func (p *Plugin) removeStaged(path string, block bool) error {
	if err := p.step("remove the stage"); err != nil {
		return err
	}
	if gone(os.Remove(path)) == nil { // a mount point cannot be removed
		return nil
	}
	if err := (volume.Place{Dir: path}).Unmount(); err != nil {
		return err
	}
	if block {
		files, err := os.ReadDir(path)
		if gone(err) != nil {
			return err
		}
		for _, file := range files {
			if err := gone(os.Remove(filepath.Join(path, file.Name()))); err != nil {
				return err
			}
		}
	}
	return gone(os.Remove(path))
}

// gone is nil if err says that there is nothing.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// recordsBelow calls f with the record of each volume that is published or staged on the node.
func (p *Plugin) recordsBelow(f func(r record)) error {
	for _, levels := range [][]string{
		{"pods", "*", "plugins", "kubernetes.io~csi", "*", dataFile},
		{"pods", "*", "volumes", "kubernetes.io~csi", "*", dataFile},
		{"plugins", Name, "*", "*", dataFile},
		{"plugins", Name, devicesDir, "*", dataDir, dataFile},
	} {
		files, err := below(p.rootDir, levels)
		if err != nil {
			return err
		}
		for _, file := range files {
			r, err := readRecord(file)
			if err != nil {
				return err
			}
			if r.Driver != "" && r.Mode != string(storagev1.VolumeLifecycleEphemeral) {
				f(r)
			}
		}
	}
	return nil
}

// below returns the paths below a directory, whose elements are the levels. "*" is any name. Unlike [filepath.Glob], it
// fails if a directory cannot be read.
func below(dir string, levels []string) (paths []string, err error) {
	if len(levels) == 0 {
		return []string{dir}, nil
	}
	if levels[0] != "*" {
		return below(filepath.Join(dir, levels[0]), levels[1:])
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		more, err := below(filepath.Join(dir, e.Name()), levels[1:])
		if err != nil {
			return nil, err
		}
		paths = append(paths, more...)
	}
	return paths, nil
}
