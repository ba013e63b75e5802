package statustest

// Cases returns the names of all tests of the suite.
func Cases() (names []string) {
	for _, c := range cases {
		names = append(names, c.name)
	}
	return names
}
