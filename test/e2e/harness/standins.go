package harness

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// mirroredImage is one that specs name with the registry registry.k8s.io; see [ClusterOptions].
const mirroredImage = "e2e-test-images/busybox:1.36.1-1"

// devicePluginImage is the device plugin of specs, which manifests in the node tests name with the registry
// registry.k8s.io.
const devicePluginImage = "e2e-test-images/sample-device-plugin:1.8.0"

// guardedImage is one that specs pull with credentials, from a registry of the port of ours. They start it as a pod, of
// which the stand-in does nothing.
const guardedImage = "pause:testing"

// agnhostScript runs agnhost, but for the registry of specs, in whose place that of the cluster is.
const agnhostScript = `if [ "$1" = fake-registry-server ]; then
	` + Forever + `
fi
exec /agnhost "$@"`

// addStandIns adds images of busybox for those of the images that the node tests run as servers
// or with a shell. agnhost has its own program. Those of which specs look for the process run a shell by their names.
func (r *Registry) addStandIns(images []string, agnhost string) error {
	data, err := layer()
	if err != nil {
		return err
	}
	programs, err := programsLayer(agnhost)
	if err != nil {
		return err
	}
	// The right to an image belongs to its ID, which is therefore not that of another image.
	r.add(guardedImage, data, imageConfig{Env: []string{"PATH=/bin", "GUARDED=1"},
		Cmd: []string{"/bin/sh", "-c", Forever}})
	for _, image := range append(images, registryAddr+"/"+mirroredImage) {
		image, ok := strings.CutPrefix(image, registryAddr+"/")
		config := imageConfig{Env: []string{"PATH=/usr/local/bin:/bin"}, Cmd: []string{"/bin/sh", "-c", Forever}}
		var more [][2][]byte
		switch name, _, _ := strings.Cut(image, ":"); {
		case !ok:
			continue
		case name == "busybox" || name == "ipc-utils" || name == "glibc-dns-testing" || image == mirroredImage:
		case name == "agnhost" || name == "nonroot":
			more = append(more, programs)
			config.Entrypoint, config.Cmd = []string{"/bin/sh", "-c", agnhostScript, name}, []string{"pause"}
			if name == "nonroot" {
				config.User = "1234"
			}
		case name == "nonewprivs":
			more, config.Cmd = append(more, programs), []string{"nnp"}
		case name == "nginx" || name == "pause":
			// busybox does what its name says behind the last slash.
			config.Entrypoint, config.Cmd = []string{"/bin/sh", "-c", `exec -a "` + name +
				` /sh" /bin/busybox -c "` + Forever + `"`, name}, nil
		default:
			continue
		}
		r.add(image, data, config, more...)
	}
	return nil
}

// ncScript sends UDP as nc does, which busybox does not. Debian's shell of busybox would take its own nc.
const ncScript = `#!/bin/bash
case "$*" in *-u*) ;; *) exec /bin/nc "$@" ;; esac
exec 3<>"/dev/udp/${@: -2:1}/${@: -1}"
cat >&3
exec 2>/dev/null # bash reports the end of cat
timeout 1 cat <&3
`

// programsLayer returns what the images agnhost and nonewprivs have and busybox has not, as a tar and compressed. bash
// and curl are those of the host, if it has them.
func programsLayer(agnhost string) (layer [2][]byte, err error) {
	var raw, packed bytes.Buffer
	w := tar.NewWriter(&raw)
	add := func(header tar.Header, data []byte) {
		header.Size = int64(len(data))
		err = errors.Join(err, w.WriteHeader(&header))
		_, written := w.Write(data)
		err = errors.Join(err, written)
	}
	copied := map[string]bool{}
	file := func(name, path string, mode int64) {
		if copied[name] {
			return
		}
		copied[name] = true
		data, failed := os.ReadFile(path)
		err = errors.Join(err, failed)
		add(tar.Header{Name: name, Mode: mode}, data)
	}
	dir := filepath.Dir(agnhost)
	file("agnhost", agnhost, 0o755)
	add(tar.Header{Name: "agnhost-2", Typeflag: tar.TypeSymlink, Linkname: "agnhost"}, nil)
	file("localhost.crt", filepath.Join(dir, "localhost.crt"), 0o644)
	file("localhost.key", filepath.Join(dir, "localhost.key"), 0o644)
	file("usr/local/bin/nnp", filepath.Join(dir, "nonewprivs"), 0o6755)
	add(tar.Header{Name: "usr/local/bin/nc", Mode: 0o755}, []byte(ncScript))
	add(tar.Header{Name: "uploads/", Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	add(tar.Header{Name: "etc/passwd", Mode: 0o644}, []byte("root:x:0:0:root:/root:/bin/sh\n"+
		"user-defined-in-image:x:1000:1000::/:/bin/sh\n"))
	add(tar.Header{Name: "etc/group", Mode: 0o644}, []byte("root:x:0:\nuser-defined-in-image:x:1000:\n"+
		"group-defined-in-image:x:50000:user-defined-in-image\n"))
	for _, name := range []string{"bash", "curl"} {
		path, missing := exec.LookPath(name)
		if missing != nil {
			continue
		}
		file("bin/"+name, path, 0o755)
		if name == "bash" {
			add(tar.Header{Name: "bin/sh", Typeflag: tar.TypeSymlink, Linkname: "bash", Mode: 0o777}, nil)
		}
		for _, lib := range libraries(path) {
			file(lib[1:], lib, 0o755)
		}
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return layer, err
	}
	z, _ := gzip.NewWriterLevel(&packed, gzip.NoCompression)
	z.Write(raw.Bytes())
	z.Close()
	return [2][]byte{raw.Bytes(), packed.Bytes()}, nil
}
