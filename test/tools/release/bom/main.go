// Bom reports what programs and packages link: the licences of all modules, and a bill of materials. Run it
// in the directory of a module:
//
//	bom [-tags TAGS] [-licenses FILE] [-sbom FILE -version VERSION] PACKAGE...
//
// It fails if a licence is not one of those that [allowed] has, or is not recognized. The licence of a package
// is that of its directory and all directories above it in its module. Environment variables such as GOOS
// choose the platform.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
)

func main() {
	tags := flag.String("tags", "", "build tags")
	licenses := flag.String("licenses", "", "write the licences, with their texts, to this `file`")
	sbom := flag.String("sbom", "", "write a CycloneDX bill of materials of the first package to this `file`")
	version := flag.String("version", "", "version of the module, for the bill of materials")
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*tags, *licenses, *sbom, *version, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "bom:", err)
		os.Exit(1)
	}
}

func run(tags, licenses, sbom, version string, patterns []string) error {
	packages, err := list(tags, patterns)
	if err != nil {
		return err
	}
	modules, err := collect(packages)
	if err != nil {
		return err
	}
	if licenses != "" {
		if err := os.WriteFile(licenses, texts(modules), 0o644); err != nil {
			return err
		}
	}
	if sbom != "" {
		data, err := materials(modules, packages, version)
		if err != nil {
			return err
		}
		if err := os.WriteFile(sbom, data, 0o644); err != nil {
			return err
		}
	}
	fmt.Print(summary(modules))
	return judge(modules)
}

// summary returns how many modules have each licence.
func summary(modules []*module) string {
	count := map[string]int{}
	for _, m := range modules {
		for _, id := range m.ids() {
			count[id]++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d modules:", len(modules))
	for i, id := range sorted(count) {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, " %s %d", id, count[id])
	}
	b.WriteByte('\n')
	return b.String()
}

// texts returns a table of the modules, and each text once.
func texts(modules []*module) []byte {
	var b bytes.Buffer
	b.WriteString("This program contains the following modules.\n\n")
	for _, m := range modules {
		fmt.Fprintf(&b, "%s %s: %s\n", m.path, m.version, strings.Join(m.ids(), ", "))
	}
	users := map[string][]string{} // by text
	var order []string
	for _, m := range modules {
		for _, f := range m.files {
			text := strings.TrimSpace(strings.ReplaceAll(f.text, "\r\n", "\n"))
			if users[text] == nil {
				order = append(order, text)
			}
			users[text] = append(users[text], m.path+"/"+f.name)
		}
	}
	for _, text := range order {
		b.WriteString("\n" + strings.Repeat("=", 80) + "\n")
		slices.Sort(users[text])
		for _, user := range users[text] {
			b.WriteString(user + "\n")
		}
		b.WriteString("\n" + text + "\n")
	}
	return b.Bytes()
}
