package gc

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// The bounds of the file with the records.
const (
	// maxImageRecords is the number of images that are written, those of the latest use.
	maxImageRecords = 10_000
	// maxImageID is the length of an ID in bytes up to which an image is written.
	maxImageID = 256
	// maxImageFile is the size in bytes up to which the file is read. A record takes 200
	// bytes.
	maxImageFile = 8 << 20
)

// imageRecord is what is remembered of an image.
type imageRecord struct {
	// FirstSeen is the time of the first list with the image, or of its use before.
	FirstSeen time.Time `json:"firstSeen"`
	// LastUsed is the end of the last use that is known, zero if none is. While InUse is
	// set, it is the time of the last list in memory, and of no meaning on disk.
	LastUsed time.Time `json:"lastUsed,omitzero"`
	// InUse means that a container ran with the image when it was listed last.
	InUse bool `json:"inUse,omitempty"`
}

// imageRecords are the records of all images that were in the last list.
type imageRecords struct {
	byID map[string]*imageRecord
	// changed means that the file differs. The passing of time in a record with InUse is
	// no change, so that nothing is written while nothing happens.
	changed bool
}

// observe brings the records up to date with a list, and returns its images with what is
// remembered of them. No record is in the future, also if the clock was set back.
func (r *imageRecords) observe(list []runtime.Image, now time.Time) []Image {
	images := make([]Image, len(list))
	there := make(map[string]bool, len(list))
	for i := range list {
		image := &list[i]
		there[image.ID] = true
		rec := r.byID[image.ID]
		if rec == nil {
			rec = &imageRecord{FirstSeen: now}
			if used := image.LastUsed; !used.IsZero() && used.Before(now) {
				rec.FirstSeen = used // it was there
			}
			r.byID[image.ID] = rec
			r.changed = true
		}
		before := *rec
		running := slices.ContainsFunc(image.UsedBy,
			func(u runtime.ImageUse) bool { return u.State != runtime.ContainerExited })
		rec.update(image.LastUsed, running, now)
		if rec.FirstSeen != before.FirstSeen || rec.InUse != before.InUse || !rec.InUse &&
			rec.LastUsed != before.LastUsed {
			r.changed = true
		}
		images[i] = Image{Image: *image, FirstSeen: rec.FirstSeen}
		images[i].LastUsed = rec.LastUsed
	}
	for id := range r.byID {
		if !there[id] {
			r.drop(id)
		}
	}
	return images
}

// update records whether a container of the image runs, and the last use that the runtime
// has seen.
func (rec *imageRecord) update(last time.Time, running bool, now time.Time) {
	if rec.FirstSeen.After(now) {
		rec.FirstSeen = now
	}
	switch {
	case running:
		last = now
	case rec.InUse && rec.LastUsed.IsZero() && last.IsZero(): // it ended while no agent ran
		last = now
	}
	if last.After(rec.LastUsed) {
		rec.LastUsed = last
	}
	if rec.LastUsed.After(now) {
		rec.LastUsed = now
	}
	rec.InUse = running
}

// drop forgets an image that was removed.
func (r *imageRecords) drop(id string) {
	delete(r.byID, id)
	r.changed = true
}

// imageFile is the content of the file. The version changes when the meaning of a field
// does.
type imageFile struct {
	Version int                     `json:"version"`
	Images  map[string]*imageRecord `json:"images"`
}

const imageFileVersion = 1

// readImageRecords reads the file; one that does not exist has no records. Records are
// returned also with an error: there are none then.
func readImageRecords(path string) (*imageRecords, error) {
	records := &imageRecords{byID: map[string]*imageRecord{}}
	if path == "" {
		return records, nil
	}
	data, err := safefile.ReadFile(path, maxImageFile)
	if errors.Is(err, fs.ErrNotExist) {
		return records, nil
	}
	if err != nil {
		return records, err
	}
	var file imageFile
	if err := json.Unmarshal(data, &file); err != nil {
		return records, fmt.Errorf("%s: %w", path, err)
	}
	if file.Version != imageFileVersion {
		return records, fmt.Errorf("%s: version %d is not known", path, file.Version)
	}
	for id, rec := range file.Images {
		if rec == nil {
			continue
		}
		if rec.InUse {
			rec.LastUsed = time.Time{} // see imageRecord
		}
		records.byID[id] = rec
	}
	return records, nil
}

// write writes the file if the records have changed. A reader sees either the old or the
// new content, also after a crash.
func (r *imageRecords) write(path string) error {
	if path == "" || !r.changed {
		return nil
	}
	file := imageFile{Version: imageFileVersion, Images: maps.Clone(r.byID)}
	maps.DeleteFunc(file.Images, func(id string, _ *imageRecord) bool { return len(id) > maxImageID })
	if len(file.Images) > maxImageRecords {
		ids := slices.SortedFunc(maps.Keys(file.Images), func(a, b string) int {
			return cmp.Or(file.Images[b].LastUsed.Compare(file.Images[a].LastUsed), cmp.Compare(a, b))
		})
		for _, id := range ids[maxImageRecords:] {
			delete(file.Images, id)
		}
	}
	data, err := json.Marshal(file)
	if err != nil {
		return err
	}
	if err := safefile.WriteSync(path, data); err != nil {
		return err
	}
	if err := safefile.SyncDir(filepath.Dir(path)); err != nil {
		return err
	}
	r.changed = false
	return nil
}
