package main

import (
	"os"
	"strings"
	"testing"
)

// Licences that are not allowed or not known are errors, each with the module and the file.
func TestJudge(t *testing.T) {
	apache, err := os.ReadFile("../../../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		files []licenseFile
		want  string // "" if it is allowed
	}{
		"allowed":         {[]licenseFile{newLicenseFile("LICENSE", string(apache))}, ""},
		"with a notice":   {[]licenseFile{newLicenseFile("LICENSE", string(apache)), newLicenseFile("NOTICE.txt", "Copyright somebody")}, ""},
		"none":            {nil, "module example.com/m v1.0.0 has no licence that is recognized"},
		"a notice alone":  {[]licenseFile{newLicenseFile("NOTICE", string(apache))}, "module example.com/m v1.0.0 has no licence that is recognized"},
		"unknown":         {[]licenseFile{newLicenseFile("LICENSE", string(apache)), newLicenseFile("sub/LICENSE", "all rights reserved")}, "module example.com/m v1.0.0: the licence in sub/LICENSE is not recognized"},
		"not allowed":     {[]licenseFile{{name: "COPYING", ids: []string{"GPL-3.0"}}}, "module example.com/m v1.0.0: the licence GPL-3.0 in COPYING is not allowed"},
		"one of them not": {[]licenseFile{{name: "LICENSE", ids: []string{"AGPL-3.0", "MIT"}}}, "module example.com/m v1.0.0: the licence AGPL-3.0 in LICENSE is not allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := judge([]*module{{path: "example.com/m", version: "v1.0.0", files: test.files}}); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestLicenseName(t *testing.T) {
	for name, want := range map[string]bool{
		"LICENSE": true, "LICENCE.md": true, "license-apache.txt": true, "COPYING": true, "NOTICE": true, "UNLICENSE": true,
		"licensed.go": false, "README.md": false, "copyright": false,
	} {
		if got := licenseName.MatchString(name); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Equal texts are written once, below the names of all that have them.
func TestTexts(t *testing.T) {
	mit := licenseFile{name: "LICENSE", text: "the text\r\n", ids: []string{"MIT"}}
	same := mit
	same.text = "the text\n"
	out := string(texts([]*module{{path: "a", version: "v1.0.0", files: []licenseFile{mit}},
		{path: "b", version: "v2.0.0", files: []licenseFile{same}}}))
	if strings.Count(out, "the text") != 1 || !strings.Contains(out, "a/LICENSE\nb/LICENSE\n\nthe text") ||
		!strings.Contains(out, "b v2.0.0: MIT\n") {
		t.Error(out)
	}
}
