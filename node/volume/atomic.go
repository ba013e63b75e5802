package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// The names of the writer in a volume, as in kubelet (atomic_writer.go).
const (
	// dataLink is a link to the directory with the current files.
	dataLink = "..data"
	// newDataLink is a link that is going to be renamed to dataLink.
	newDataLink = "..data_tmp"
	// dataDirFormat is the name of a directory with files, up to a random number.
	dataDirFormat = "..2006_01_02_15_04_05."
)

// writer brings the files of a volume to a payload. The files are in a directory of
// their own, ..2006_01_02_15_04_05.123, to which ..data is a link; what a user sees in the
// root of the volume are links through ..data. A new payload gets a new directory, and the
// rename of a link to ..data makes all of it visible at once.
//
// What a write that was interrupted at any step has left is completed or removed by the
// next. All is done relative to a descriptor of the volume, and no link leads out of it.
type writer struct {
	root *os.Root
	access
	before steps
}

// openWriter returns the writer of a volume. The caller closes the root.
func openWriter(dir string, a access) (*writer, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &writer{root: root, access: a}, nil
}

// isWritten reports whether a volume has had all files of some payload.
func isWritten(dir string) bool {
	target, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil || !isDataDir(target) {
		return false
	}
	info, err := os.Lstat(filepath.Join(dir, target))
	return err == nil && info.IsDir()
}

// isDataDir reports whether the name is one of dataDirFormat.
func isDataDir(name string) bool {
	return strings.HasPrefix(name, "..") && len(name) > len("..") && name != dataLink && name != newDataLink &&
		!strings.Contains(name, "/")
}

// write makes the files of the volume those of the payload. It writes nothing if they are.
func (w *writer) write(p payload) (changed bool, err error) {
	if err := p.check(); err != nil {
		return false, err
	}
	current, err := w.current()
	if err != nil {
		return false, err
	}
	if w.holds(current, p) {
		return false, w.tidy(current, p.tops())
	}
	if err := w.tidy(current, nil); err != nil { // before it is written: the disk may be full
		return false, err
	}
	next, err := w.writeDir(p)
	if err == nil {
		err = w.publish(next)
	}
	if err != nil {
		return false, errors.Join(err, w.tidy(current, nil))
	}
	return true, w.tidy(next, p.tops())
}

// complete does what is left of a write that was interrupted after it has published its
// files.
func (w *writer) complete() error {
	current, err := w.current()
	if err != nil || current == "" {
		return err
	}
	dir, err := w.root.Open(current)
	if err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1)
	if err = errors.Join(err, dir.Close()); err != nil {
		return err
	}
	tops := make(map[string]bool, len(names))
	for _, name := range names {
		tops[name] = true
	}
	return w.tidy(current, tops)
}

// tidy makes the root of the volume have the links of these names, unless there are no names,
// and removes what is neither current nor visible.
func (w *writer) tidy(current string, names map[string]bool) error {
	entries, err := w.list()
	if err != nil {
		return err
	}
	if names != nil {
		if err := w.link(names, entries); err != nil {
			return err
		}
	}
	return w.removeOthers(current, entries)
}

// current returns the name of the directory with the current files, "" if there is none.
func (w *writer) current() (string, error) {
	target, err := w.root.Readlink(dataLink)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if !isDataDir(target) {
		return "", nil
	}
	return target, nil
}

// removeOthers removes what interrupted writes have left, and the directory of the
// previous payload. A reader that has opened files there keeps them.
func (w *writer) removeOthers(current string, entries []fs.DirEntry) error {
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, "..") || name == dataLink || name == current {
			continue
		}
		if err := w.before.step("remove %s", name); err != nil {
			return err
		}
		if err := w.root.RemoveAll(name); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) list() ([]fs.DirEntry, error) {
	dir, err := w.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	return dir.ReadDir(-1)
}

// holds reports whether the directory has the files of the payload, with their content, modes,
// owners and group, and no others. What cannot be read is to be written again.
func (w *writer) holds(name string, p payload) bool {
	if name == "" {
		return false
	}
	dir, err := w.root.OpenRoot(name)
	if err != nil {
		return false
	}
	defer func() { _ = dir.Close() }()
	made, err := dir.Stat(".")
	if err != nil {
		return false
	}
	writer, _ := ownerOf(made)
	for name, f := range p {
		info, err := dir.Lstat(name)
		if err != nil || !w.granted(info, f, writer) || !sameContent(dir, name, info, f.data) {
			return false
		}
	}
	files := 0
	err = fs.WalkDir(dir.FS(), ".", func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files++
		}
		return err
	})
	return err == nil && files == len(p)
}

// grants returns the mode, the owner and the group of a file; -1 leaves those of this process.
func (w *writer) grants(f file) (mode fs.FileMode, uid, gid int) {
	mode, uid = f.mode, -1
	if f.owner != nil {
		uid = int(*f.owner)
	}
	if w.gid >= 0 {
		mode |= 0o440
	}
	return mode, uid, w.gid
}

// granted reports whether a file has what writeFile has granted. writer is the user that a file
// without an owner belongs to. The group of a file without fsGroup may be any: the file has that
// of its directory if the pod had an fsGroup before.
func (w *writer) granted(info fs.FileInfo, f file, writer int) bool {
	uid, gid := ownerOf(info)
	if uid < 0 {
		return true // there are no owners here
	}
	mode, wantUID, wantGID := w.grants(f)
	if wantUID < 0 {
		wantUID = writer
	}
	return info.Mode().Perm() == mode && uid == wantUID && (wantGID < 0 || gid == wantGID)
}

// sameContent reports whether the file is a regular one with that content.
func sameContent(dir *os.Root, name string, info fs.FileInfo, data []byte) bool {
	if !info.Mode().IsRegular() || info.Size() != int64(len(data)) {
		return false
	}
	f, err := dir.Open(name)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	have := make([]byte, len(data))
	_, err = io.ReadFull(f, have)
	return err == nil && bytes.Equal(have, data)
}

// writeDir writes the payload to a new directory and returns its name.
func (w *writer) writeDir(p payload) (string, error) {
	name, err := w.makeDataDir()
	if err != nil {
		return "", err
	}
	dir, err := w.root.OpenRoot(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = dir.Close() }()
	made := map[string]bool{".": true}
	for file, f := range p {
		if err := w.makeDirs(dir, path.Dir(file), made); err != nil {
			return "", err
		}
		if err := w.writeFile(dir, file, f); err != nil {
			return "", err
		}
	}
	return name, nil
}

func (w *writer) makeDataDir() (string, error) {
	if err := w.before.step("make the directory"); err != nil {
		return "", err
	}
	prefix := time.Now().UTC().Format(dataDirFormat)
	for {
		name := prefix + fmt.Sprint(rand.Uint32())
		err := w.root.Mkdir(name, 0o700)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		return name, w.grantDir(w.root, name)
	}
}

// makeDirs makes a directory and those above it, unless they were made.
func (w *writer) makeDirs(root *os.Root, name string, made map[string]bool) error {
	if made[name] {
		return nil
	}
	if err := w.makeDirs(root, path.Dir(name), made); err != nil {
		return err
	}
	if err := w.before.step("make %s", name); err != nil {
		return err
	}
	if err := root.Mkdir(name, 0o700); err != nil {
		return err
	}
	made[name] = true
	return w.grantDir(root, name)
}

// grantDir gives a directory that was just made its mode, whatever the umask, and its
// group. Users may read it; the group as in kubelet's SetVolumeOwnership.
func (w *writer) grantDir(root *os.Root, name string) error {
	d, err := root.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	mode := fs.FileMode(0o755)
	if w.gid >= 0 {
		if err := d.Chown(-1, w.gid); err != nil {
			return err
		}
		mode |= fs.ModeSetgid | 0o550
	}
	return d.Chmod(mode)
}

// writeFile writes a file that does not exist. It gets its mode last, so that nobody can
// read it before it has its owner.
func (w *writer) writeFile(dir *os.Root, name string, f file) (err error) {
	if err := w.before.step("write %s", name); err != nil {
		return err
	}
	out, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := out.Write(f.data); err != nil {
		return err
	}
	mode, uid, gid := w.grants(f)
	if uid >= 0 || gid >= 0 {
		if err := out.Chown(uid, gid); err != nil {
			return err
		}
	}
	return out.Chmod(mode)
}

// publish makes a directory the current one.
func (w *writer) publish(name string) error {
	if err := w.before.step("link %s", newDataLink); err != nil {
		return err
	}
	if err := w.root.Symlink(name, newDataLink); err != nil {
		return err
	}
	if err := w.before.step("rename %s", newDataLink); err != nil {
		return err
	}
	return w.root.Rename(newDataLink, dataLink)
}

// link makes the root of the volume have a link through ..data for each of the names, and
// no other links. Directories there are mount points of other volumes.
func (w *writer) link(names map[string]bool, entries []fs.DirEntry) error {
	there := map[string]bool{}
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, "..") {
			continue
		}
		if e.IsDir() {
			there[name] = true
			continue
		}
		if names[name] && e.Type() == fs.ModeSymlink {
			if target, err := w.root.Readlink(name); err == nil && target == dataLink+"/"+name {
				there[name] = true
				continue
			}
		}
		if err := w.before.step("remove %s", name); err != nil {
			return err
		}
		if err := w.root.Remove(name); err != nil {
			return err
		}
	}
	for name := range names {
		if there[name] {
			continue
		}
		if err := w.before.step("link %s", name); err != nil {
			return err
		}
		if err := w.root.Symlink(dataLink+"/"+name, name); err != nil {
			return err
		}
	}
	return nil
}
