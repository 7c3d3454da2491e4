package batch

type legacyScratch struct{}
