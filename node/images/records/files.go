package records

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

// load lists the directories and reads the intents, once. An error is logged once, and the next call tries again.
func (r *Records) load() error {
	r.mu.RLock()
	loaded := r.loaded
	r.mu.RUnlock()
	if loaded {
		return nil
	}
	r.loading.Lock()
	damaged, again, err := r.loadOnce()
	r.loading.Unlock()
	if err != nil && !again {
		r.opts.Logger.Error(err, "The records of pulled images cannot be read; pods need a pull to use images whose "+
			"credentials are verified")
	}
	for name, err := range damaged {
		r.opts.Logger.Error(err, "An intent to pull an image cannot be read; pods need a pull to use this image",
			"file", filepath.Join(r.pulling, name))
	}
	return err
}

// loadOnce is load under the lock. It returns why intents cannot be read, by the names of their files. again means that
// the error is that of the call before.
func (r *Records) loadOnce() (damaged map[string]error, again bool, _ error) {
	r.mu.RLock()
	loaded := r.loaded
	r.mu.RUnlock()
	if loaded {
		return nil, false, nil
	}
	pulled, err := list(r.pulled)
	pulling, err2 := list(r.pulling)
	if err := errors.Join(err, err2); err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		again = r.loadErr == err.Error()
		r.loadErr = err.Error()
		return nil, again, err
	}
	var images []string
	damaged = map[string]error{}
	for _, name := range pulling {
		data, err := safefile.ReadFile(filepath.Join(r.pulling, name), maxFile)
		var image string
		if err == nil {
			image, err = decodeIntent(name, data)
		}
		if err != nil {
			damaged[name] = err
			continue
		}
		images = append(images, image)
	}
	began := time.Now()
	for _, image := range images {
		r.setIntent(image, func(i *intent) { i.open = began })
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range damaged {
		r.damaged[name] = struct{}{}
	}
	for _, name := range pulled {
		r.entries[name] = entry{}
	}
	r.loaded = true
	return damaged, false, nil
}

// list returns the names of the files of a directory that can be records or intents, and removes temporary files of
// processes that were killed.
func list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		switch name := e.Name(); {
		case isFileName(name):
			names = append(names, name)
		case strings.HasPrefix(name, filePrefix):
			_ = os.Remove(filepath.Join(dir, name)) // it is written over at the latest
		}
	}
	return names, nil
}

// read reads a record that is not in memory. ok is false if its file is gone. If it cannot be read, it is logged once,
// and the record is nil.
func (r *Records) read(name string) (record *recordFile, ok bool) {
	unlock := r.busy.lock(name)
	record, ok, err := r.readLocked(name)
	unlock()
	if err != nil {
		r.opts.Logger.Error(err, "The record of a pulled image cannot be read; pods need a pull to use this image",
			"file", filepath.Join(r.pulled, name))
	}
	return record, ok
}

// readLocked is read under the lock of the file. It returns an error that is to be logged.
func (r *Records) readLocked(name string) (record *recordFile, ok bool, _ error) {
	r.mu.RLock()
	e, ok := r.entries[name]
	r.mu.RUnlock()
	if !ok || e.record != nil {
		return e.record, ok, nil
	}
	data, err := safefile.ReadFile(filepath.Join(r.pulled, name), maxFile)
	if err == nil {
		record, err = decodeRecord(name, data)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		delete(r.entries, name)
		return nil, false, nil
	case err != nil:
		if e.logged {
			return nil, true, nil
		}
		e.logged = true
	default:
		// The file of an older version is written again, see Listed.
		e = entry{record: record, unsaved: record.APIVersion != version}
	}
	r.entries[name] = e
	return record, true, err
}

// record adds to the record of an image who may use it, and writes the file if that is a change. The record is valid
// also if the file cannot be written.
func (r *Records) record(image, ref string, add allowed) error {
	name, err := nameOf(image)
	if err != nil {
		return err
	}
	if err := r.load(); err != nil {
		return err
	}
	file := fileName(ref)
	_, _ = r.read(file) // which logs; a record that cannot be read is replaced
	unlock := r.busy.lock(file)
	defer unlock()
	r.mu.Lock()
	e := r.entries[file]
	merged := e.record.merge(ref, name, add)
	if merged != e.record {
		e = entry{record: merged, unsaved: true}
	}
	e.changed = time.Now() // also if nothing is new: a list that began before does not decide about this pull
	r.entries[file] = e
	r.mu.Unlock()
	return r.saveLocked(file, e)
}

// saveLocked writes the file of a record, unless it has the record. The caller holds its lock.
func (r *Records) saveLocked(name string, e entry) error {
	if !e.unsaved {
		return nil
	}
	data, err := encodeRecord(e.record)
	if err != nil {
		return err
	}
	if err := save(r.pulled, name, data); err != nil {
		return err
	}
	e.unsaved = false
	r.mu.Lock()
	r.entries[name] = e
	r.mu.Unlock()
	return nil
}

// save writes a file so that it survives a power loss. It makes the directory if necessary.
func save(dir, name string, data []byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(dir, name)
	if err := safefile.WriteSyncVia(path+tempSuffix, path, data); err != nil {
		return err
	}
	return safefile.SyncDir(dir)
}

// remove removes a file. It need not survive a power loss: a file that is back is removed again.
func remove(dir, name string) error {
	if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// keyedLocks are locks by a key. One that nobody holds takes no memory.
type keyedLocks struct {
	mu   sync.Mutex
	held map[string]*keyedLock
}

type keyedLock struct {
	sync.Mutex
	// users hold the lock or wait for it.
	users int
}

// lock locks the key, and returns the function that unlocks it.
func (k *keyedLocks) lock(key string) (unlock func()) {
	k.mu.Lock()
	if k.held == nil {
		k.held = map[string]*keyedLock{}
	}
	l := k.held[key]
	if l == nil {
		l = &keyedLock{}
		k.held[key] = l
	}
	l.users++
	k.mu.Unlock()
	l.Lock()
	return func() {
		l.Unlock()
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(k.held, key)
		}
	}
}
