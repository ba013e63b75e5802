package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// The parts of CycloneDX 1.6 that are used; see cyclonedx.org/docs/1.6/json.
type (
	document struct {
		Schema       string       `json:"$schema"`
		BOMFormat    string       `json:"bomFormat"`
		SpecVersion  string       `json:"specVersion"`
		Version      int          `json:"version"`
		Metadata     metadata     `json:"metadata"`
		Components   []component  `json:"components"`
		Dependencies []dependency `json:"dependencies"`
	}
	metadata struct {
		Timestamp string    `json:"timestamp,omitempty"`
		Component component `json:"component"`
	}
	component struct {
		Type     string         `json:"type"`
		Ref      string         `json:"bom-ref"`
		Name     string         `json:"name"`
		Version  string         `json:"version"`
		Scope    string         `json:"scope,omitempty"`
		PURL     string         `json:"purl"`
		Licenses []licenseEntry `json:"licenses,omitempty"`
	}
	licenseEntry struct {
		License struct {
			ID string `json:"id"`
		} `json:"license"`
	}
	dependency struct {
		Ref       string   `json:"ref"`
		DependsOn []string `json:"dependsOn,omitempty"`
	}
)

// materials returns the bill of materials of the last package, which go list puts behind all that it links.
// Its time is that of SOURCE_DATE_EPOCH, so that the same sources have the same bill.
func materials(modules []*module, packages []goPackage, version string) ([]byte, error) {
	program := packages[len(packages)-1]
	if program.Name != "main" {
		return nil, fmt.Errorf("%s is not a program", program.ImportPath)
	}
	if version == "" {
		return nil, errors.New("a bill of materials needs -version")
	}
	doc := document{Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", BOMFormat: "CycloneDX",
		SpecVersion: "1.6", Version: 1}
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
		}
		doc.Metadata.Timestamp = time.Unix(seconds, 0).UTC().Format(time.RFC3339)
	}
	var links []string
	for _, m := range modules {
		c := component{Type: "library", Name: m.path, Version: m.version}
		if m.main {
			c.Type, c.Name, c.Version = "application", program.ImportPath, version
		} else {
			c.Scope = "required"
		}
		for _, id := range m.ids() {
			var entry licenseEntry
			entry.License.ID = id
			c.Licenses = append(c.Licenses, entry)
		}
		c.PURL = "pkg:golang/" + m.path + "@" + c.Version
		if m.main {
			c.PURL += "#" + strings.TrimPrefix(program.ImportPath, m.path+"/")
		}
		c.Ref = c.PURL
		if m.main {
			doc.Metadata.Component = c
		} else {
			doc.Components = append(doc.Components, c)
			links = append(links, c.Ref)
		}
		for _, name := range sorted(m.npm) {
			purl := "pkg:npm/" + strings.Replace(name, "@", "%40", 1) + "@" + m.npm[name]
			doc.Components = append(doc.Components, component{Type: "library", Ref: purl, Name: name,
				Version: m.npm[name], Scope: "required", PURL: purl})
			links = append(links, purl)
		}
	}
	if doc.Metadata.Component.Name == "" {
		return nil, fmt.Errorf("%s is not of the module in this directory", program.ImportPath)
	}
	doc.Dependencies = append(doc.Dependencies, dependency{Ref: doc.Metadata.Component.Ref, DependsOn: links})
	for _, ref := range links {
		doc.Dependencies = append(doc.Dependencies, dependency{Ref: ref})
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(doc)
	return b.Bytes(), err
}
