package chart
import ("testing";"os")
func TestLook(t *testing.T){ for _,f:=range scenes(){ if err:=validAll([]Figure{f});err!=nil{t.Fatal(err)}; l:=newLayout(f); b,err:=l.png(); if err!=nil{t.Fatal(err)}; os.WriteFile("/tmp/chart/"+f.Name+".png",b,0o644); s,err:=l.svg(); if err!=nil{t.Fatal(err)}; os.WriteFile("/tmp/chart/"+f.Name+".svg",[]byte(s),0o644)}}
