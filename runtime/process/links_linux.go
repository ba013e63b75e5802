package process

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// linkRecord is the record of a link on disk. It is written before the link is made, and removed
// after it.
type linkRecord struct {
	At        string `json:"at"`
	To        string `json:"to"`
	SandboxID string `json:"sandboxID"`
	PodUID    string `json:"podUID"`
}

func (s *Server) linksDir() string { return filepath.Join(s.opts.Dir, "links") }

func (s *Server) linkFile(at string) string {
	sum := sha256.Sum256([]byte(at))
	return filepath.Join(s.linksDir(), hex.EncodeToString(sum[:])+".json")
}

// makeLinks makes links for a container of the sandbox. Those that exist stay. It fails if the
// sandbox is being removed, since its links would stay.
func (s *Server) makeLinks(b *sandbox, links []link) error {
	s.linksMu.Lock()
	defer s.linksMu.Unlock()
	if len(links) > 0 {
		b.mu.Lock()
		removed := b.removed
		b.mu.Unlock()
		if removed { // its links are removed after this
			return fmt.Errorf("sandbox %s is being removed", b.rec.ID)
		}
	}
	for _, l := range links {
		rec := linkRecord{At: l.at, To: l.to, SandboxID: b.rec.ID, PodUID: b.rec.Config.GetMetadata().GetUid()}
		if err := s.makeLink(rec); err != nil {
			return fmt.Errorf("a link to its volume at %s: %w", l.at, err)
		}
	}
	return nil
}

var errTaken = errors.New("something is at the path; remove it, or choose another mountPath")

func (s *Server) makeLink(rec linkRecord) error {
	var old linkRecord
	err := supervise.ReadFile(s.linkFile(rec.At), &old)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	recorded := err == nil
	if recorded && old.PodUID != rec.PodUID && s.runs(old.SandboxID) {
		return fmt.Errorf("the path is a link of the pod with UID %s", old.PodUID)
	}
	switch to, err := os.Readlink(rec.At); {
	case errors.Is(err, fs.ErrNotExist):
	case err == nil && to == rec.To && !recorded:
		return nil // it is not of this server, and stays
	case err == nil && to == rec.To:
	case err == nil && recorded && to == old.To && old.SandboxID != rec.SandboxID:
		if err := os.Remove(rec.At); err != nil {
			return err
		}
	case err == nil && recorded && to == old.To:
		return fmt.Errorf("another container of the pod has a link there, to %s", to)
	default:
		return errTaken
	}
	if err := supervise.WriteFile(s.linkFile(rec.At), &rec); err != nil {
		return err
	}
	s.ownsLink(s.linkFile(rec.At), rec.SandboxID)
	return symlink(rec.To, rec.At)
}

// ownsLink remembers of which sandbox a record is.
func (s *Server) ownsLink(file, sandboxID string) {
	if s.linkOwners == nil {
		s.linkOwners = map[string]string{}
	}
	s.linkOwners[file] = sandboxID
}

// symlink makes a link unless it is there.
func symlink(to, at string) error {
	err := os.Symlink(to, at)
	switch {
	case errors.Is(err, fs.ErrExist):
		if there, err := os.Readlink(at); err != nil || there != to {
			return errTaken
		}
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the directory above must exist: %w", err)
	default:
		return err
	}
}

// runs reports whether processes of the sandbox may run. A sandbox that has stopped, as that of a
// static pod before an edit, gives up its links.
func (s *Server) runs(sandboxID string) bool {
	s.mu.Lock()
	b := s.sandboxes[sandboxID]
	s.mu.Unlock()
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.reported
}

// removeLinks removes the links of a sandbox that is being removed.
func (s *Server) removeLinks(sandboxID string) error {
	return s.removeLinksIf(func(owner string) bool { return owner == sandboxID })
}

// recoverLinks removes the links of sandboxes that do not exist.
func (s *Server) recoverLinks() error {
	return s.removeLinksIf(func(owner string) bool { return s.sandboxes[owner] == nil })
}

// removeLinksIf removes the links of sandboxes that are gone, with their records. A record that cannot
// be read now is kept, because its link could not be removed without it. That is an error if the record
// is known to be one of a sandbox that is gone; otherwise it is logged.
func (s *Server) removeLinksIf(gone func(sandboxID string) bool) error {
	s.linksMu.Lock()
	defer s.linksMu.Unlock()
	entries, err := os.ReadDir(s.linksDir())
	if err != nil {
		return err
	}
	var unread []error
	for _, e := range entries {
		path := filepath.Join(s.linksDir(), e.Name())
		if strings.HasPrefix(e.Name(), ".") { // of a write that was interrupted: there is no link yet
			_ = os.Remove(path)
			continue
		}
		var rec linkRecord
		err := supervise.ReadFile(path, &rec)
		if err == nil && path != s.linkFile(rec.At) {
			err = &supervise.BadFileError{Path: path, Err: errors.New("it is not the record of this link")}
		}
		if bad := (*supervise.BadFileError)(nil); errors.As(err, &bad) {
			s.discard(path, err)
			delete(s.linkOwners, path)
			continue
		}
		if err != nil {
			if owner, known := s.linkOwners[path]; known && gone(owner) {
				unread = append(unread, err)
			} else {
				s.opts.Logger.Error(err, "Cannot read the record of a link; it is kept")
			}
			continue
		}
		if !gone(rec.SandboxID) {
			s.ownsLink(path, rec.SandboxID)
			continue
		}
		// Something else at the path is not of this server.
		if to, err := os.Readlink(rec.At); err == nil && to == rec.To {
			if err := os.Remove(rec.At); err != nil {
				return err
			}
		}
		if err := os.Remove(path); err != nil {
			return err
		}
		delete(s.linkOwners, path)
	}
	return errors.Join(unread...)
}
