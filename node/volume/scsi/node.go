package scsi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

// node has the directories of a plugin and the files of the kernel.
type node struct {
	// name is kubelet's name of the plugin.
	name    string
	rootDir string
	opts    Options
}

// ifacePrefix is how the names of the directories above those of iSCSI disks begin.
const ifacePrefix = "iface-"

// dir is the directory of all disks, of those that are devices of pods if block.
func (n *node) dir(block bool) string {
	if block {
		return filepath.Join(n.rootDir, "plugins", n.name, devicesDir)
	}
	return filepath.Join(n.rootDir, "plugins", n.name)
}

// stages returns the directories of the disks with the key, or of all disks if it is empty.
func (n *node) stages(block bool, key string) (stages []string, err error) {
	parents := []string{n.dir(block)}
	if n.name == ISCSI {
		if parents, err = entriesOf(n.dir(block), ifacePrefix); err != nil {
			return nil, err
		}
	}
	for _, parent := range parents {
		found, err := entriesOf(parent, "")
		if err != nil {
			return nil, err
		}
		stages = append(stages, slices.DeleteFunc(found, func(path string) bool {
			name := filepath.Base(path)
			return name == devicesDir || key != "" && name != key
		})...)
	}
	return stages, nil
}

// entriesOf returns the paths of the entries of a directory whose names have the prefix. There are none if there is no
// directory.
func entriesOf(dir, prefix string) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, nil
}

// stage returns the directory in which a disk is staged, or is to be staged if it is not.
func (n *node) stage(d *disk, block bool) (string, error) {
	if d.key == "" {
		return "", errors.New("the volume names no disk")
	}
	for _, name := range []string{d.parent, d.key} {
		if strings.ContainsRune(name, filepath.Separator) || name == "." || name == ".." {
			return "", fmt.Errorf("the name of the disk, %q, cannot be that of a directory", name)
		}
	}
	stages, err := n.stages(block, d.key)
	if err != nil || len(stages) > 0 {
		return append(stages, "")[0], err
	}
	return filepath.Join(n.dir(block), d.parent, d.key), nil
}

// path returns the path of a file of the kernel.
func (n *node) path(elem ...string) string {
	return filepath.Join(append([]string{n.opts.root}, elem...)...)
}

// read returns the content of a file of the kernel, and nothing if it cannot be read.
func (n *node) read(elem ...string) string {
	data, _ := os.ReadFile(n.path(elem...))
	return strings.TrimSpace(string(data))
}

// write writes to a file of the kernel, in a program: a write that has a disk that does not answer scanned or removed
// can take minutes.
func (n *node) write(ctx context.Context, value string, elem ...string) error {
	_, err := n.call(ctx, "sh", "-c", `echo "$1" >"$2"`, "sh", value, n.path(elem...))
	return err
}

// call runs a program that does not mount.
func (n *node) call(ctx context.Context, program string, args ...string) (string, error) {
	limited, cancel := context.WithTimeoutCause(ctx, callTimeout,
		fmt.Errorf("%s has not ended after %v", program, callTimeout))
	defer cancel()
	output, err := n.opts.run(limited, program, args...)
	return string(output), err
}

// mapOf returns the name of the multipath device that has the device, if there is one.
func (n *node) mapOf(name string) string {
	holders, _ := os.ReadDir(n.path("sys/block", name, "holders"))
	for _, h := range holders {
		if strings.HasPrefix(n.read("sys/block", h.Name(), "dm/uuid"), "mpath-") {
			return h.Name()
		}
	}
	return ""
}

// joined returns the path of the device for the paths of a disk: the multipath device if there is one. If wait is true,
// it may appear later.
func (n *node) joined(ctx context.Context, names []string, wait bool) (string, error) {
	limited, cancel := context.WithTimeout(ctx, mapTimeout)
	defer cancel()
	for {
		for _, name := range names {
			if joined := n.mapOf(name); joined != "" {
				return n.path("dev", joined), nil
			}
		}
		if !wait || !flow.Sleep(limited, interval) {
			return n.path("dev", names[0]), context.Cause(ctx)
		}
	}
}

// removeMaps removes the multipath devices of the devices.
func (n *node) removeMaps(ctx context.Context, names []string) {
	var maps []string
	for _, name := range names {
		if joined := n.mapOf(name); joined != "" && !slices.Contains(maps, joined) {
			maps = append(maps, joined)
		}
	}
	for _, name := range maps {
		if output, err := n.call(ctx, "multipath", "-f", n.path("dev", name)); err != nil {
			n.opts.Logger.Error(err, "A multipath device cannot be removed", "device", name, "output", output)
		}
	}
}

// removeDevices removes devices from the kernel. What a device that does not answer still holds fails from then on,
// also if the call does not end.
func (n *node) removeDevices(ctx context.Context, names []string) {
	for _, name := range names {
		if !exists(n.path("sys/block", name, "device/delete")) {
			continue
		}
		if err := n.write(ctx, "1", "sys/block", name, "device/delete"); err != nil {
			n.opts.Logger.Error(err, "A device cannot be removed", "device", name)
		}
	}
}

// mountedByHost reports whether a file system of a device, of one of its partitions or of its multipath device is
// mounted.
func (n *node) mountedByHost(name string) (bool, error) {
	if joined := n.mapOf(name); joined != "" {
		name += "|" + joined + "|mapper/" + regexp.QuoteMeta(n.read("sys/block", joined, "dm/name"))
	}
	of, err := regexp.Compile(`(?m)^/dev/(` + name + `)(-?p?(art)?\d+)? `)
	if err != nil {
		return false, err
	}
	mounts, err := os.ReadFile(n.path("proc/self/mounts"))
	return of.Match(mounts), err
}
