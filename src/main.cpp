// Entry point of lockstep; everything happens in cli/.
int main() {
  return 0;
}
