package records

import (
	"path/filepath"
	"strings"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// listAge is the maximum age of a list of images when it is passed to Listed. What has changed since then is not
// decided by that list.
const listAge = 10 * time.Minute

// Listed receives a complete list of the images of the runtime, at most 10 minutes after its read began. Call it as
// early as possible, and then with each list.
//
// An image whose pull was cut off, for example by the end of the agent, and that is in the list gets a record without
// credentials, unless an earlier list shows that it was present before. Records of images that are not in the list are
// removed, unless they have changed in the last 10 minutes.
func (r *Records) Listed(list runtime.ImageList) {
	if r.load() != nil { // it is logged
		return
	}
	refs := make(map[string]struct{}, len(list.Images))
	ids := map[string]string{}
	for i := range list.Images {
		image := &list.Images[i]
		refs[fileName(image.ID)] = struct{}{}
		for _, names := range [][]string{image.Tags, image.Digests} {
			for _, name := range names {
				ids[fullName(name)] = image.ID
			}
		}
	}
	r.decideIntents(ids)
	r.prune(refs)
	r.findPreloaded(refs, ids)
}

// findPreloaded finds out which images of a list the agent has not pulled. refs are the names of the files that their
// records would have, ids the IDs by full name.
func (r *Records) findPreloaded(refs map[string]struct{}, ids map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sure := len(r.damaged) == 0 // which image an intent is about
	pulling := map[string]struct{}{}
	for image := range r.intents {
		sure = sure && !isShort(image)
		if id, ok := ids[fullName(image)]; ok {
			pulling[fileName(id)] = struct{}{}
		}
	}
	before := r.preloaded
	r.preloaded = map[string]struct{}{}
	for name := range refs {
		if _, ok := r.entries[name]; !ok && (has(before, name) || sure && !has(pulling, name)) {
			r.preloaded[name] = struct{}{}
		}
	}
}

// decideIntents ends the intents of pulls whose outcome was not known. ids are the IDs of the images in the list, by
// full name.
func (r *Records) decideIntents(ids map[string]string) {
	open := map[string]intent{}
	r.mu.RLock()
	for image, i := range r.intents {
		if !i.open.IsZero() {
			open[image] = i
		}
	}
	r.mu.RUnlock()
	for image, i := range open {
		id, present := ids[fullName(image)]
		switch {
		case present && r.isPreloaded(id):
		case present:
			// Nobody is allowed: it is not known with which credential it was pulled.
			if err := r.record(image, id, allowed{}); err != nil {
				r.opts.Logger.Error(err, "An image whose pull was cut off cannot be recorded; it counts as pulled",
					"image", image)
				continue
			}
		case isShort(image) && completed(ids, image):
			continue // the runtime has completed the name in its own way
		}
		if (i.late || !present) && time.Since(i.open) < listAge {
			continue // the runtime may have pulled it after the list
		}
		r.closeIntent(image, i)
	}
}

// completed reports whether an image of the list can be what a runtime has made of a short name: it puts a registry in
// front.
func completed(ids map[string]string, short string) bool {
	full := fullName(short)
	end := full[strings.LastIndexByte(full, '/'):]
	for name := range ids {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

// isPreloaded reports whether the agent has not pulled an image that was in the list before.
func (r *Records) isPreloaded(id string) bool {
	name := fileName(id)
	r.mu.RLock()
	defer r.mu.RUnlock()
	_, recorded := r.entries[name]
	return !recorded && has(r.preloaded, name)
}

// closeIntent removes the intent of a pull whose outcome is known now, if it has not changed.
func (r *Records) closeIntent(image string, seen intent) {
	name := fileName(image)
	unlock := r.busy.lock(name)
	defer unlock()
	i := r.intentOf(image)
	if i.open != seen.open {
		return // of another pull
	}
	if i.pulls == 0 && remove(r.pulling, name) != nil {
		return // the next list decides again
	}
	r.setIntent(image, func(i *intent) { i.open, i.late = time.Time{}, false })
}

// prune removes the records of images that are not in the list, and writes those that could not be written, or have an
// old version.
func (r *Records) prune(refs map[string]struct{}) {
	var absent, unread []string
	r.mu.RLock()
	for name, e := range r.entries {
		if _, ok := refs[name]; !ok && time.Since(e.changed) >= listAge {
			absent = append(absent, name)
		} else if e.unsaved || e.record == nil && !e.logged {
			unread = append(unread, name)
		}
	}
	r.mu.RUnlock()
	for _, name := range absent {
		if err := r.forget(name); err != nil {
			r.opts.Logger.Error(err, "The record of an image that is gone cannot be removed",
				"file", filepath.Join(r.pulled, name))
		}
	}
	for _, name := range unread {
		if _, ok := r.read(name); !ok {
			continue
		}
		if err := r.save(name); err != nil {
			r.opts.Logger.Error(err, "The record of a pulled image cannot be written",
				"file", filepath.Join(r.pulled, name))
		}
	}
}

// forget removes a record, unless it has changed.
func (r *Records) forget(name string) error {
	unlock := r.busy.lock(name)
	defer unlock()
	r.mu.RLock()
	e := r.entries[name]
	r.mu.RUnlock()
	if time.Since(e.changed) < listAge {
		return nil
	}
	if err := remove(r.pulled, name); err != nil {
		return err
	}
	r.mu.Lock()
	delete(r.entries, name)
	r.mu.Unlock()
	return nil
}

// save writes the file of a record, unless it has the record.
func (r *Records) save(name string) error {
	unlock := r.busy.lock(name)
	defer unlock()
	r.mu.RLock()
	e := r.entries[name]
	r.mu.RUnlock()
	return r.saveLocked(name, e)
}
