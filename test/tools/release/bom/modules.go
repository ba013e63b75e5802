package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// allowed are the licences under which a program with the Apache License 2.0 may be passed on with no
// duty but to pass on their texts. The identifiers are those of SPDX.
var allowed = []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0",
	"Unlicense", "Zlib"}

// standard stands for the standard library.
const standard = "std"

// library is the module of this repository. Its nested modules replace it by the directory above them.
const library = "github.com/kubeletkit/kubeletkit"

// goPackage is a package as go list shows it.
type goPackage struct {
	ImportPath, Name, Dir string
	Standard              bool
	Module                *struct {
		Path, Version, Dir string
		Main               bool
		Replace            *struct{ Path, Version string }
	}
}

// list returns the packages, and all that they link.
func list(tags string, patterns []string) (packages []goPackage, err error) {
	cmd := exec.Command("go",
		slices.Concat([]string{"list", "-deps", "-tags", tags, "-json=ImportPath,Name,Dir,Standard,Module"},
			patterns)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the packages: %w", err)
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
}

// module is a module of which packages are linked, or the standard library.
type module struct {
	path, version string
	main          bool
	dir           string
	// files are those with licences, by name.
	files []licenseFile
	// npm are the versions of npm packages whose files are embedded, by name: the dependencies of each package.json.
	npm map[string]string
}

// licenseFile is a file with a licence or a notice.
type licenseFile struct {
	name, text string
	ids        []string
	// notice means that the file has no licence but what a licence wants to be passed on.
	notice bool
}

// licenseName matches the names of such files.
var licenseName = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying|notice|patents)([-_.].*)?$`)

// collect returns the modules of the packages, sorted by path.
func collect(packages []goPackage) ([]*module, error) {
	modules := map[string]*module{}
	looked := map[string]bool{}
	for _, p := range packages {
		m, dir := (*module)(nil), p.Dir
		switch {
		case p.Standard:
			if m = modules[standard]; m == nil {
				m = &module{path: standard}
				for _, variable := range []struct {
					name string
					into *string
				}{{"GOROOT", &m.dir}, {"GOVERSION", &m.version}} {
					out, err := exec.Command("go", "env", variable.name).Output()
					if err != nil {
						return nil, err
					}
					*variable.into = strings.TrimSpace(string(out))
				}
			}
			dir = m.dir
		case p.Module == nil:
			return nil, fmt.Errorf("package %s is in no module", p.ImportPath)
		default:
			if m = modules[p.Module.Path]; m == nil {
				m = &module{path: p.Module.Path, version: p.Module.Version, main: p.Module.Main, dir: p.Module.Dir}
				if r := p.Module.Replace; r != nil && m.path != library {
					return nil, fmt.Errorf("module %s is replaced by %s %s", m.path, r.Path, r.Version)
				}
			}
		}
		modules[m.path] = m
		for ; !looked[dir] &&
			(dir == m.dir || strings.HasPrefix(dir, m.dir+string(filepath.Separator))); dir = filepath.Dir(dir) {
			looked[dir] = true
			if err := m.read(dir); err != nil {
				return nil, err
			}
		}
	}
	list := slices.SortedFunc(maps.Values(modules), func(a, b *module) int { return strings.Compare(a.path, b.path) })
	for _, m := range list {
		slices.SortFunc(m.files, func(a, b licenseFile) int { return strings.Compare(a.name, b.name) })
	}
	return list, nil
}

// read adds the files of a directory of the module, and the npm packages that its package.json names.
func (m *module) read(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if m.path == library && entry.Name() == "package.json" {
			var contents struct{ Dependencies map[string]string }
			data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
			if err == nil {
				err = json.Unmarshal(data, &contents)
			}
			if err != nil {
				return err
			}
			if m.npm == nil {
				m.npm = map[string]string{}
			}
			maps.Copy(m.npm, contents.Dependencies)
		}
		if entry.IsDir() || !licenseName.MatchString(entry.Name()) || strings.HasSuffix(entry.Name(), ".go") {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(m.dir, path)
		if err != nil {
			return err
		}
		m.files = append(m.files, newLicenseFile(filepath.ToSlash(name), string(text)))
	}
	return nil
}

func newLicenseFile(name, text string) licenseFile {
	f := licenseFile{name: name, text: text}
	lower := strings.ToLower(filepath.Base(name))
	f.notice = strings.HasPrefix(lower, "notice") || strings.HasPrefix(lower, "patents")
	if !f.notice {
		for _, match := range licensecheck.Scan([]byte(text)).Match {
			if !match.IsURL && !slices.Contains(f.ids, match.ID) {
				f.ids = append(f.ids, match.ID)
			}
		}
		slices.Sort(f.ids)
	}
	return f
}

// ids returns the licences of the module.
func (m *module) ids() (ids []string) {
	for _, f := range m.files {
		ids = append(ids, f.ids...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// judge returns an error for each licence that is not allowed, and each module whose licence is not known.
func judge(modules []*module) error {
	var errs []error
	for _, m := range modules {
		if len(m.ids()) == 0 {
			errs = append(errs, fmt.Errorf("module %s %s has no licence that is recognized", m.path, m.version))
		}
		for _, f := range m.files {
			if !f.notice && len(f.ids) == 0 {
				errs = append(errs, fmt.Errorf("module %s %s: the licence in %s is not recognized", m.path, m.version,
					f.name))
			}
			for _, id := range f.ids {
				if !slices.Contains(allowed, id) {
					errs = append(errs, fmt.Errorf("module %s %s: the licence %s in %s is not allowed", m.path,
						m.version, id, f.name))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// sorted returns the keys in order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
