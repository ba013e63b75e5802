// Image writes an image with nothing but a program and its licences, for one or more architectures, as a tar
// of an OCI image layout:
//
//	image -version v0.1.0 -revision COMMIT -licenses FILE -out FILE.tar amd64=PROGRAM [armv7=PROGRAM]...
//
// Its times are those of SOURCE_DATE_EPOCH, so that the same programs give the same image.
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// repository is where a release is pushed to.
	repository = "ghcr.io/kubeletkit/minikubelet"
	source     = "https://github.com/kubeletkit/kubeletkit"
	entrypoint = "/usr/bin/minikubelet"
)

type options struct {
	version, revision, licenses, out string
	created                          time.Time
	programs                         []string // ARCH=FILE
}

func main() {
	var o options
	flag.StringVar(&o.version, "version", "", "version, which is the tag of the image")
	flag.StringVar(&o.revision, "revision", "", "commit")
	flag.StringVar(&o.licenses, "licenses", "", "`file` with the licences of what is linked")
	flag.StringVar(&o.out, "out", "", "`file` to write")
	flag.Parse()
	o.programs = flag.Args()
	if o.version == "" || o.out == "" || o.licenses == "" || len(o.programs) == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	o.created = time.Unix(seconds, 0).UTC()
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, program := range o.programs {
		arch, file, _ := strings.Cut(program, "=")
		img, platform, err := o.image(arch, file)
		if err != nil {
			return fmt.Errorf("%s: %w", program, err)
		}
		index = mutate.AppendManifests(index,
			mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: platform}})
	}
	index = mutate.Annotations(index, o.labels()).(v1.ImageIndex)
	dir, err := os.MkdirTemp("", "image")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	err = path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          repository + ":" + o.version,
		"org.opencontainers.image.ref.name": o.version,
	}))
	if err != nil {
		return err
	}
	return o.pack(dir)
}

func (o options) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":    "minikubelet",
		"org.opencontainers.image.source":   source,
		"org.opencontainers.image.version":  o.version,
		"org.opencontainers.image.revision": o.revision,
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.created":  o.created.Format(time.RFC3339),
	}
}

// image returns the image of one architecture.
func (o options) image(arch, file string) (v1.Image, *v1.Platform, error) {
	platform := &v1.Platform{OS: "linux", Architecture: arch}
	if arch == "armv7" {
		platform.Architecture, platform.Variant = "arm", "v7"
	}
	data, err := o.layer(file)
	if err != nil {
		return nil, nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser,
		error) {
		return io.NopCloser(bytes.NewReader(data)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: o.created},
		CreatedBy: "release/image"}})
	if err != nil {
		return nil, nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Variant = platform.OS, platform.Architecture, platform.Variant
	config.Created = v1.Time{Time: o.created}
	config.Config = v1.Config{Entrypoint: []string{entrypoint}, Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
		Labels: o.labels(), StopSignal: "SIGTERM"}
	img, err = mutate.ConfigFile(img, config)
	return img, platform, err
}

// layer returns the files of the image, as a tar.
func (o options) layer(program string) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, dir := range []string{"etc", "tmp", "usr", "usr/bin", "usr/share", "usr/share/doc",
		"usr/share/doc/minikubelet", "var", "var/lib", "var/log"} {
		mode := int64(0o755)
		if dir == "tmp" {
			mode = 0o1777
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: mode,
			ModTime: o.created}); err != nil {
			return nil, err
		}
	}
	for _, file := range []struct {
		name, from string
		mode       int64
	}{{entrypoint[1:], program, 0o755}, {"usr/share/doc/minikubelet/LICENSES-OF-DEPENDENCIES", o.licenses, 0o644}} {
		data, err := os.ReadFile(file.from)
		if err != nil {
			return nil, err
		}
		if err := w.WriteHeader(&tar.Header{Name: file.name, Mode: file.mode, Size: int64(len(data)),
			ModTime: o.created}); err != nil {
			return nil, err
		}
		if _, err := w.Write(data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

// pack writes the files of the directory to the tar, in the order of their names.
func (o options) pack(dir string) error {
	out, err := os.Create(o.out)
	if err != nil {
		return err
	}
	defer out.Close()
	w := tar.NewWriter(out)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: filepath.ToSlash(name), Mode: 0o644, Size: int64(len(data)),
			ModTime: o.created}); err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return out.Close()
}
